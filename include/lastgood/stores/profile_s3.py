"""What a bucket of an S3 server does: asked of the server itself, beside the store's own code.

A question that the server refuses for want of a permission stays unknown. One that fails otherwise
is answered with no, and the failure is the evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from lastgood.rules.store_profile import Ability, Answer, Finding
from lastgood.stores.base import Prefix, StoreError
from lastgood.stores.profile_features import Features
from lastgood.stores.profile_findings import Findings, uploads_listed
from lastgood.stores.profile_writes import Writes
from lastgood.stores.s3_client import REFUSED, BulkForm, code_of, described

if TYPE_CHECKING:
    from lastgood.stores.s3 import S3Store

Question = Callable[[], Finding | Findings]


def probe_s3(store: S3Store, prefix: Prefix) -> Findings:
    """Ask everything, below the scratch prefix. Raises StoreError where the server cannot be
    reached."""
    writes, features = Writes(store, prefix), Features(store, prefix)
    questions: Mapping[tuple[Ability, ...], Question] = {
        (Ability.SIGNATURES, Ability.PRESIGNED): writes.signatures,
        (Ability.CONDITIONAL_PUT,): writes.conditional_put,
        (Ability.CONDITIONAL_COMPLETE,): writes.conditional_complete,
        (Ability.REPLAY_REFUSED,): writes.replay,
        (Ability.SHA256_OBJECT,): writes.sha256_object,
        (Ability.SHA256_PARTS,): writes.sha256_parts,
        (Ability.SHA256_COMPOSITE,): writes.sha256_composite,
        (Ability.UPLOADS_LISTED,): lambda: uploads_listed(store, Prefix(f"{prefix}pending/")),
        (Ability.UPLOADS_PAGED,): features.uploads_paged,
        (Ability.UNEQUAL_PARTS,): features.unequal_parts,
        (Ability.VERSIONS,): features.versions,
        (Ability.OBJECT_LOCK, Ability.LOCKS_SEEN): features.object_lock,
        (Ability.LIFECYCLE,): features.lifecycle,
        (Ability.TAGS,): features.tags,
        (Ability.BULK_DELETE_MD5,): lambda: features.bulk_delete(BulkForm.MD5),
        (Ability.BULK_DELETE_CRC32,): lambda: features.bulk_delete(BulkForm.CRC32),
        (Ability.SSE_S3,): features.sse_s3,
        (Ability.SSE_KMS,): features.sse_kms,
        (Ability.ENCRYPTION,): features.encryption,
    }
    findings: Findings = {}
    for abilities, question in questions.items():
        findings |= _answered(store, prefix, abilities, question)
    return findings


def _answered(
    store: S3Store, prefix: Prefix, abilities: tuple[Ability, ...], question: Question
) -> Findings:
    try:
        found = question()
    except ClientError as error:
        answer = Answer.UNKNOWN if code_of(error) in REFUSED else Answer.NO
        found = Finding(answer, described(error))
    except BotoCoreError as error:
        reason = f"probe {', '.join(abilities)}: {error}"
        raise StoreError(store=store.name, key=prefix, reason=reason) from error
    return dict.fromkeys(abilities, found) if isinstance(found, Finding) else found
