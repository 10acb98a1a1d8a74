"""The probe of any store: by doing, and reading back, in a scratch prefix that is cleaned up."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from uuid import uuid4

from lastgood.rules.store_profile import Ability, Answer, Finding, FoundProfile
from lastgood.stores.base import (
    Key,
    KeyExists,
    Outcome,
    Part,
    Prefix,
    Store,
    StoreError,
    UploadGone,
    UploadId,
)
from lastgood.stores.job_folders import MakesJobFolders
from lastgood.stores.profile_findings import FIRST, SECOND, Findings, uploads_listed

SCRATCH = "probe/"
LEFT_BEHIND_AFTER = timedelta(hours=1)  # a probe takes seconds


def probe(store: Store) -> FoundProfile:
    """Find out what a store does. Whatever is written lies below `probe/` and is removed again,
    also where the probe fails. Raises StoreError for a store that fails altogether."""
    with scratch(store) as prefix:
        if store.profile.kind == "s3":
            from lastgood.stores.profile_s3 import probe_s3
            from lastgood.stores.s3 import S3Store

            assert isinstance(store, S3Store)
            findings = probe_s3(store, prefix)
        else:
            findings = _by_protocol(store, prefix)
        findings[Ability.HIDES] = hides(store, Prefix(f"{prefix}hidden/"))
    ordered = {ability: findings[ability] for ability in Ability if ability in findings}
    return FoundProfile(store.profile.kind, ordered)


@contextmanager
def scratch(store: Store) -> Iterator[Prefix]:
    """A prefix of its own, empty again afterwards. What killed probes left is removed too."""
    prefix = Prefix(f"{SCRATCH}{uuid4().hex}/")
    try:
        yield prefix
    except BaseException:
        with suppress(StoreError):  # the first failure says more
            sweep_scratch(store, prefix)
        raise
    sweep_scratch(store, prefix)


def sweep_scratch(store: Store, prefix: Prefix) -> None:
    """Remove a probe's scratch, and that of others that is an hour older than this one. Raises
    StoreError if something of this one is left."""
    for upload in list(store.uploads(prefix)):
        store.abort_upload(upload.key, upload.upload_id)
    found = list(store.list(Prefix(SCRATCH), versions=store.profile.versioned))
    ours = [one for one in found if one.key.startswith(prefix)]
    newest = max((one.modified_at for one in ours if one.modified_at), default=None)
    old = [
        one
        for one in found
        if newest is not None
        and one.modified_at is not None
        and newest - one.modified_at > LEFT_BEHIND_AFTER
    ]
    refused = {
        (one.key, one.version_id): one.reason
        for one in store.delete(ours)
        if one.outcome is Outcome.REFUSED
    }
    list(store.delete([one for one in old if not one.key.startswith(prefix)]))
    store.prune(prefix)
    if refused and store.profile.locks:
        # The bucket's own retention: what it keeps goes with a probe after its end.
        locked = {key for key, _ in store.locked(ours)}
        refused = {kept: why for kept, why in refused.items() if kept[0] not in locked}
    for (key, _), why in refused.items():
        reason = f"the probe could not remove what it wrote: {why}"
        raise StoreError(store=store.name, key=key, reason=reason)


def upload(store: Store, key: Key, data: bytes) -> UploadId:
    """An upload of one part, whole but not completed."""
    upload_id = store.create_upload(key, len(data))
    store.write_part(key, upload_id, 1, len(data), [data])
    return upload_id


def hides(store: Store, prefix: Prefix) -> Finding:
    """Whether quarantine makes an object unreadable, and its undoing readable again."""
    key = Key(f"{prefix}object")
    store.put_new(key, FIRST)
    found = list(store.list(prefix))
    store.quarantine(prefix, found)
    hidden = store.stat(key) is None
    store.unquarantine(prefix, found)
    if store.read(key) != FIRST:
        raise StoreError(store=store.name, key=key, reason="it reads otherwise after a quarantine")
    if hidden:
        return Finding(Answer.YES, "it could not be read meanwhile, and then as before")
    return Finding(Answer.NO, "it could be read meanwhile")


def _by_protocol(store: Store, prefix: Prefix) -> Findings:
    """What a store that is reached through our own code alone can be asked. Raises StoreError also
    where a group that is to share it could not be let in."""
    if store.profile.direct:
        assert isinstance(store, MakesJobFolders)
        store.make_direct(Prefix(f"{prefix}job/"), ["folder/object"])
    return {
        Ability.SIGNATURES: Finding(Answer.UNKNOWN, "it is reached through the coordinator alone"),
        Ability.CONDITIONAL_PUT: _write_once(store, Key(f"{prefix}once")),
        **_uploads_once(store, Key(f"{prefix}upload")),
        Ability.PRESIGNED: Finding(Answer.NO, "parts go through the coordinator"),
        Ability.UPLOADS_LISTED: uploads_listed(store, Prefix(f"{prefix}pending/")),
        Ability.VERSIONS: Finding(Answer.NO, "a key has one content"),
        Ability.OBJECT_LOCK: Finding(Answer.NO, "it has none"),
    }


def _write_once(store: Store, key: Key) -> Finding:
    store.put_new(key, FIRST)
    try:
        store.put_new(key, SECOND)
    except KeyExists:
        if store.read(key) == FIRST:
            return Finding(Answer.YES, "other bytes under the key were refused")
    return Finding(Answer.NO, "other bytes took the key's place")


def _uploads_once(store: Store, key: Key) -> Findings:
    first, second = upload(store, key, FIRST), upload(store, key, SECOND)
    store.complete_upload(key, first, [Part(1, len(FIRST))])
    findings = {Ability.CONDITIONAL_COMPLETE: _second_completion(store, key, second)}
    try:
        store.write_part(key, first, 1, len(SECOND), [SECOND])
        said = "accepted"
    except UploadGone:
        said = "refused"
    unchanged = store.read(key) == FIRST
    findings[Ability.REPLAY_REFUSED] = Finding(
        Answer.YES if unchanged else Answer.NO, f"a part after the completion was {said}"
    )
    return findings | _attests(store, key, hashlib.sha256(FIRST).hexdigest())


def _second_completion(store: Store, key: Key, upload_id: UploadId) -> Finding:
    try:
        store.complete_upload(key, upload_id, [Part(1, len(SECOND))])
    except KeyExists:
        if store.read(key) == FIRST:
            return Finding(Answer.YES, "completing a second upload of the key was refused")
        return Finding(Answer.NO, "completing a second upload was refused, and yet it replaced")
    return Finding(Answer.NO, "a second upload of the key was completed")


def _attests(store: Store, key: Key, sha256: str) -> Findings:
    there, parts = store.stat(key), store.attested_parts(key)
    whole = there is not None and there.sha256 == sha256
    by_part = parts is not None and [part.sha256 for part in parts] == [sha256]
    computed = "it computes the digest itself as it receives"
    return {
        Ability.SHA256_OBJECT: Finding(Answer.YES if whole else Answer.NO, computed),
        Ability.SHA256_PARTS: Finding(Answer.YES if by_part else Answer.NO, computed),
        Ability.SHA256_COMPOSITE: Finding(Answer.NO, "it keeps the parts' own digests"),
    }
