"""Every error that a user of lastgood can meet.

The docstring of a class is its message: it is formatted with the facts that the raiser gives, so a
raiser cannot forget one. `status` and `type` are what the HTTP API answers (RFC 9457), `facts` go
into the problem document beside them.
"""

from __future__ import annotations

import inspect
from typing import Any, ClassVar


class LastgoodError(Exception):
    """{detail}"""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "internal-error"

    def __init__(self, **facts: Any) -> None:
        self.facts = facts
        super().__init__(
            inspect.cleandoc(type(self).__doc__ or "").replace("\n", " ").format(**facts)
        )

    @property
    def title(self) -> str:
        """The type in words: `stale-sequence` reads `stale sequence`."""
        return self.type.replace("-", " ")


# --- what a caller sent is wrong -------------------------------------------------------------


class InvalidInput(LastgoodError):
    """{where}: {reason}."""

    status = 422
    type = "invalid-input"


class WrongCommand(InvalidInput):
    """{command}: {reason}"""

    type = "wrong-command"


class InvalidName(InvalidInput):
    """{where}: {name!r} is not a name; use 1 to 63 of a-z 0-9 . _ -, beginning with a letter or digit."""

    type = "invalid-name"


class InvalidPath(InvalidInput):
    """{where}: {path!r} is not an object path: {reason}."""

    type = "invalid-path"


class PathTraversal(InvalidPath):
    """{where}: {path!r} has a `.`, `..` or empty component; object paths stay inside their checkpoint."""

    type = "path-traversal"


class PathAbsolute(InvalidPath):
    """{where}: {path!r} is absolute; give the path relative to the checkpoint."""

    type = "path-absolute"


class PathControlCharacter(InvalidPath):
    """{where}: {path!r} holds a NUL or another control character."""

    type = "path-control-character"


class PathTooLong(InvalidPath):
    """{where}: an object path of {length} bytes; at most {limit}, and {component_limit} a component."""

    type = "path-too-long"


class PathDuplicate(InvalidPath):
    """{where}: {path!r} is named twice, or is both a file and a folder."""

    type = "path-duplicate"


class SizeInvalid(InvalidInput):
    """{where}: {bytes!r} is not a size; give whole bytes from 0 to {limit}."""

    type = "size-invalid"


class BadManifest(InvalidInput):
    """The manifest is wrong at {where}: {reason}."""

    type = "bad-manifest"


class UnknownManifestVersion(BadManifest):
    """The manifest's format_version at {where} is {version!r}; this lastgood reads {known}."""

    type = "unknown-manifest-version"


class InvalidConfig(InvalidInput):
    """{file}, line {line}, key {key}: {reason}."""

    type = "invalid-config"


class InvalidPolicy(InvalidInput):
    """Policy {policy}, {where}: {reason}."""

    type = "invalid-policy"


# --- who asks ---------------------------------------------------------------------------------


class Unauthenticated(LastgoodError):
    """No valid bearer token was sent: {reason}."""

    status = 401
    type = "unauthenticated"


class Forbidden(LastgoodError):
    """{user} may not {action}."""

    status = 403
    type = "forbidden"


class NotFound(LastgoodError):
    """There is no {what} {name!r}."""

    status = 404
    type = "not-found"


# --- the state forbids it ---------------------------------------------------------------------


class Conflict(LastgoodError):
    """{reason}."""

    status = 409
    type = "conflict"


class StaleAcquire(Conflict):
    """{stage} is at generation {current}, not {after}: somebody acquired after you looked. Ask for the
    latest generation and decide again whether to replace it."""

    type = "stale-acquire"


class FencedGeneration(Conflict):
    """Generation {generation} of {stage} is fenced: {reason}. Stop this writer; only a new generation
    can go on."""

    type = "fenced-generation"


class StaleSequence(Conflict):
    """{stage} already stands at {current}; {asked} is not newer. Take the next sequence."""

    type = "stale-sequence"


class AttemptState(Conflict):
    """Attempt {attempt} is {state}; {action} needs one that is {needed}."""

    type = "attempt-state"


class AttemptLost(AttemptState):
    """Attempt {attempt} was lost with store {store}, which an operator gave up. Begin another one: it goes
    where its project stores now."""

    type = "attempt-lost"


class GrantExpired(Conflict):
    """The upload grant of attempt {attempt} ended at {expires_at}; ask for a new one."""

    status = 403
    type = "grant-expired"


class LeaseExpired(Conflict):
    """The {kind} lease {lease} ended at {expires_at}; acquire again."""

    type = "lease-expired"


class ManifestConflict(Conflict):
    """Attempt {attempt} was already committed with manifest {committed}, not {sent}."""

    type = "manifest-conflict"


class IdempotencyConflict(Conflict):
    """The idempotency key {key!r} was used before for another request."""

    type = "idempotency-conflict"


class RestoreBlocked(Conflict):
    """Restores of {stage} are blocked: receipt {receipt} failed. An operator, or a validation that passes
    on an earlier checkpoint, has to establish a valid one first."""

    type = "restore-blocked"


class StageRetired(Conflict):
    """{stage} was retired by {asked_by}: {reason}. {way_out}"""

    type = "stage-retired"


class FreshStartRefused(Conflict):
    """{stage} has {committed} committed checkpoints; to begin it from nothing say fresh=true."""

    type = "fresh-start-refused"


class CopyState(Conflict):
    """The copy of {checkpoint} in {store} is {state}; {action} needs {needed}."""

    type = "copy-state"


class CopyGone(CopyState):
    """The deletion of {checkpoint} in {store} has begun ({state}); it can only be finished."""

    status = 410
    type = "copy-gone"


class CopyLost(CopyGone):
    """The copy of {checkpoint} was lost with store {store}, which an operator gave up: {action} needs a
    copy that is {needed}, and nobody has its bytes."""

    type = "copy-lost"


class MarkNotSweepable(Conflict):
    """Mark {mark} cannot be swept: {reason}."""

    type = "mark-not-sweepable"


class SweepRefused(Conflict):
    """The sweep of {project} was stopped: {reason}."""

    type = "sweep-refused"


class NoRoom(LastgoodError):
    """No room in {store} for {project}, which stands {state} there. In bytes: {asked_bytes} asked, {usage_bytes}
    used of {hard_bytes} hard, {reserve_bytes} reserved. Try again in {retry_after_seconds} s, after the next sweep."""

    status = 507
    type = "no-room"


# --- the bytes are wrong ----------------------------------------------------------------------


class IntegrityFailure(LastgoodError):
    """Attempt {attempt} is not what the manifest says in {count} of its objects, first in {first}."""

    status = 422
    type = "integrity-failure"


class DigestMismatch(IntegrityFailure):
    """Attempt {attempt} has other bytes than the manifest says in {count} of its objects, first in {first}."""

    type = "digest-mismatch"


class SizeMismatch(IntegrityFailure):
    """Attempt {attempt} has another size than declared in {count} of its objects, first in {first}."""

    type = "size-mismatch"


class MissingObject(IntegrityFailure):
    """Attempt {attempt} lacks {count} of its objects in the store, first {first}."""

    type = "missing-object"


# --- the service cannot answer now ------------------------------------------------------------


class Unavailable(LastgoodError):
    """{what} is not available: {reason}. Try again."""

    status = 503
    type = "unavailable"


class PrefixBusy(Unavailable):
    """Another process has been changing {prefix} in its store for more than {seconds} s. Try again."""

    type = "prefix-busy"


class CatalogBehind(LastgoodError):
    """The catalog is behind store {store}: {evidence}. It serves and deletes nothing until
    `lastgood rebuild`."""

    status = 503
    type = "catalog-behind"


class ForeignCatalog(LastgoodError):
    """Store {store} belongs to catalog {owner}, not to {ours}; two catalogs never share a prefix.
    If that one is lost, `lastgood rebuild` takes its place."""

    status = 503
    type = "foreign-catalog"


class ClockJump(LastgoodError):
    """The catalog's clock jumped by {jump_seconds} s at {at}; everything destructive waits until an
    operator accepts it with `lastgood clock accept {jump} --because WHY`."""

    status = 503
    type = "clock-jump"


class CatalogSetup(LastgoodError):
    """The catalog cannot be used: {reason}."""

    status = 503
    type = "catalog-setup"
