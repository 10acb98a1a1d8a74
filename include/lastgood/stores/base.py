"""What lastgood asks of a place for bytes.

A key is exact text relative to the store's own root or prefix: never normalised, never re-encoded.
Flows choose by `StoreProfile`, never by the kind's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, BinaryIO, ClassVar, NewType, Protocol, TypeVar, dataclass_transform

from lastgood.errors import LastgoodError

Key = NewType("Key", str)
Prefix = NewType("Prefix", str)  # ends with "/"
UploadId = NewType("UploadId", str)
EVERYTHING = Prefix("")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class StoreError(LastgoodError):
    """Store {store}{about}: {reason}."""

    status = 503
    type = "store-error"
    is_there: ClassVar[bool] = False  # it answers, and will do what was asked again, or elsewhere

    def __init__(self, **facts: Any) -> None:
        """Messages tell what it is about, as `about` or as `of`: a key, or with an empty `key` the
        `bucket`, where the raiser names one."""
        named = repr(facts["key"]) if facts.get("key") else ""
        bucket = f"bucket {facts['bucket']!r}" if facts.get("bucket") else ""
        about = f", key {named}" if named else f", {bucket}" if bucket else ""
        of = f" of {named or bucket}" if named or bucket else ""
        super().__init__(**facts, about=about, of=of)
        self.facts = facts


class KeyMissing(StoreError):
    """Store {store} has no {key!r}."""

    status = 404
    type = "key-missing"


class KeyExists(StoreError):
    """Store {store} already holds {key!r}; it is never replaced."""

    status = 409
    type = "key-exists"


class UploadGone(StoreError):
    """Store {store} knows no upload {upload} for {key!r}: it was completed or aborted."""

    status = 409
    type = "upload-gone"


class AccessRefused(StoreError):
    """Store {store} refused {action}{of}: {reason}."""

    type = "access-refused"


class ObjectLocked(StoreError):
    """Store {store} keeps {count} versions locked, such as {key!r}: {reason}."""

    status = 409
    type = "object-locked"


class ForeignEntry(StoreError):
    """Store {store}: at {key!r} stands {what}, not an object; it is never opened or followed."""

    status = 422
    type = "foreign-entry"


class PartInvalid(StoreError):
    """Store {store}, key {key!r}, part {part}: {reason}."""

    status = 422
    type = "part-invalid"


@dataclass(frozen=True, slots=True)
class StoreProfile:
    """What a store was found able to do."""

    kind: str  # "file" | "s3" | "postgres": for people, not for decisions
    presigns: bool  # parts go straight to the store by presigned URL
    direct: bool  # jobs write into the attempt's own folder on a shared file system
    attests_sha256: bool  # the store itself proves a SHA-256, whole or by parts (where it also
    # presigns, a part's URL is made for the part's digest)
    versioned: bool
    hides: bool  # `quarantine` makes the bytes unreadable under their key, and can be undone
    locks: bool = False  # versions may be locked against deletion: ask `locked` before it


@dataclass_transform(frozen_default=True)
def _listed(cls: type[T]) -> type[T]:
    # Frozen for the type checker alone: at run time that would be half of what a listing takes.
    return dataclass(slots=True, unsafe_hash=True)(cls)


@_listed
class StoredObject:
    """One object as the store lists it. `hidden`: it lies in quarantine. `modified_at` is the
    store's clock: for people and for objects of unknown origin, never for a decision over our
    own."""

    key: Key
    size_bytes: int
    allocated_bytes: int | None = None
    version_id: str | None = None
    is_latest: bool = True  # the newest bytes under its key, hidden or not
    is_delete_marker: bool = False
    hidden: bool = False
    modified_at: datetime | None = None
    sha256: str | None = None  # only where the store attests it, and then only from `stat`
    foreign: str | None = None  # what it is instead of an object: "symlink", "fifo", ...
    etag: str | None = None  # as the store gives it: no checksum
    inode: tuple[int, int] | None = None  # device and number, of a file with further names
    raw_key: bytes | None = None  # the exact bytes of a name that is no UTF-8
    composite: str | None = None  # attested: "<SHA-256 over the parts' SHA-256s>-<parts>"; `stat`


@dataclass(frozen=True, slots=True)
class PendingUpload:
    """An upload that was neither completed nor aborted, with the bytes of the parts it holds."""

    key: Key
    upload_id: UploadId
    part_bytes_held: int
    parts: int
    initiated_at: datetime | None


@dataclass(frozen=True, slots=True)
class Part:
    """One part of an upload as the store holds it; numbers begin at 1."""

    number: int
    size_bytes: int
    etag: str | None = None
    sha256: str | None = None  # only where the store attests it


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A presigned URL, and the headers that its signature covers."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lock:
    """What keeps a version from being deleted. `until` None: nobody knows when it ends. Not `seen`:
    whether there is one may not be asked with these credentials, so it counts."""

    reason: str
    until: datetime | None = None
    seen: bool = True

    def __str__(self) -> str:
        return self.reason


class Outcome(StrEnum):
    GONE = "gone"  # it is not there any more, and was, as far as the store tells
    ABSENT = "absent"  # it was not there
    REFUSED = "refused"  # the store said no; see reason


@dataclass(frozen=True, slots=True)
class KeyOutcome:
    key: Key
    version_id: str | None
    outcome: Outcome
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What the backend itself accounts: `how` names the method (`file sizes`, `listing`, ...).

    `causes` names the part of `used_bytes` that neither `list` nor `uploads` shows, so that used =
    sum of listed sizes + sum of `part_bytes_held` + sum of causes. A negative cause stands for
    bytes that a listing shows twice (hard links)."""

    used_bytes: int
    total_bytes: int | None  # None: the backend has no limit that it tells
    how: str
    allocated_bytes: int | None = None
    causes: Mapping[str, int] = field(default_factory=dict)


class Listing(Protocol[T_co]):
    """An iterator over entries in ascending order of the keys' UTF-8 bytes. `complete` turns true
    only when the store said that nothing follows; before that, and after a failure, it is false,
    and what was seen proves no absence."""

    complete: bool

    def __iter__(self) -> Iterator[T_co]: ...


class Store(Protocol):
    """Bytes by key. Every method may raise StoreError (or a subclass) and is safe to repeat."""

    name: str
    profile: StoreProfile

    def put_new(self, key: Key, data: bytes) -> StoredObject:
        """Write a small object (manifest, marker, control key) durably, never replacing: KeyExists
        unless the stored bytes are the same, in which case it answers as if it had just written."""

    def read(self, key: Key, *, limit_bytes: int = 64 << 20) -> bytes:
        """The whole of a small object. KeyMissing if it is not there; StoreError beyond the
        limit."""

    def stat(self, key: Key) -> StoredObject | None:
        """The current, not hidden object, or None. An entry that is no object has `foreign` set; a
        path that leads through one raises ForeignEntry."""

    def attested_parts(self, key: Key) -> Sequence[Part] | None:
        """The parts of the current object with the SHA-256 that the store proved for each (a
        composite digest: compare it part by part with digests of equal parts, never with a
        whole-object digest). None where it proved none, or not of these very bytes."""

    def open(
        self,
        key: Key,
        *,
        start: int = 0,
        size_bytes: int | None = None,
        version_id: str | None = None,
    ) -> AbstractContextManager[BinaryIO]:
        """A stream over the bytes from `start`; `readinto` works on it. KeyMissing if not there."""

    def delete(self, objects: Sequence[StoredObject]) -> Iterator[KeyOutcome]:
        """Remove these objects, hidden or not (as each one's `hidden` says), by version where one
        is named; one outcome per object, in order. A crash in the middle leaves each either there
        or gone. Nothing is removed before the iterator is consumed."""

    def locked(self, objects: Sequence[StoredObject]) -> Mapping[tuple[Key, str | None], Lock]:
        """Those of these objects that the store would not delete, or may not, with what keeps them:
        by key and version. A lock that cannot be seen counts. Empty where the profile has none."""

    def prune(self, prefix: Prefix) -> None:
        """Remove the folders that hold nothing, at and below the prefix, where the store has
        folders: what a crash in `delete`, or a job that never wrote, leaves. Never an object."""

    def list(self, prefix: Prefix, *, versions: bool = False) -> Listing[StoredObject]:
        """Everything below the prefix, hidden objects included (with `hidden` set), pending uploads
        not. With `versions` also noncurrent versions and delete markers."""

    def quarantine(self, prefix: Prefix, objects: Sequence[StoredObject]) -> None:
        """Hide a copy: rename of its folder, delete markers, or tags, as the profile allows. Needs
        no free space. Repeating it is a no-op."""

    def unquarantine(self, prefix: Prefix, objects: Sequence[StoredObject]) -> None:
        """Undo `quarantine`; the objects read again under their keys. Repeating it is a no-op."""

    def protect(self, prefix: Prefix) -> None:
        """Make a committed copy read-only where the store can (file modes)."""

    def usage(self, prefix: Prefix = EVERYTHING) -> Usage:
        """The backend's own accounting of what lies below the prefix."""

    # uploads: one per object, however small; parts are equal in size but the last

    def part_bytes(self, size_bytes: int) -> int:
        """The part size for an object of this size, such that there are at most 10,000 parts."""

    def create_upload(self, key: Key, size_bytes: int) -> UploadId:
        """Begin an upload of `size_bytes`, in parts of `part_bytes(size_bytes)`, the last one
        shorter; an empty object has one empty part. Nothing is visible under the key until
        `complete_upload`."""

    def presign_part(
        self,
        key: Key,
        upload_id: UploadId,
        number: int,
        expires_seconds: int,
        *,
        sha256: str | None = None,
    ) -> SignedRequest:
        """Where, and with which headers, the client PUTs the part. Only where the profile presigns;
        where it also attests, for the part with this SHA-256 (hexadecimal) and no other."""

    def presign_read(self, key: Key, expires_seconds: int, *, version_id: str | None = None) -> str:
        """A URL from which the client GETs the object. Only where the profile presigns."""

    def write_part(
        self,
        key: Key,
        upload_id: UploadId,
        number: int,
        size_bytes: int,
        chunks: Iterable[bytes | memoryview],
    ) -> Part:
        """Receive a part, hashing as it comes; the Part carries its SHA-256. A part that comes
        again replaces itself. PartInvalid if the size is not as said; UploadGone after
        completion."""

    def parts(self, key: Key, upload_id: UploadId) -> Sequence[Part]:
        """The parts held so far, in order, for a client that resumes. UploadGone if unknown."""

    def complete_upload(self, key: Key, upload_id: UploadId, parts: Sequence[Part]) -> StoredObject:
        """Publish the object durably without replacing (KeyExists). PartInvalid, and nothing
        published, if `parts` are not the parts held, whole and in order. UploadGone may mean that
        an earlier call completed it: then `stat` and verify."""

    def abort_upload(self, key: Key, upload_id: UploadId) -> Outcome:
        """Throw the parts away. ABSENT if the store knows no such upload."""

    def uploads(self, prefix: Prefix) -> Listing[PendingUpload]:
        """Every pending upload below the prefix, all pages, with its parts' bytes."""

    # a shared file system

    def direct_path(self, prefix: Prefix) -> str:
        """The folder a job writes into. Only where the profile is direct."""

    def local_path(self, prefix: Prefix) -> str | None:
        """Where what lies below the prefix can be read as files of this machine, by somebody who
        holds a reader's lease; None where there are no such files."""
