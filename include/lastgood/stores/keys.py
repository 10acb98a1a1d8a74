"""Keys as paths: which keys a directory can hold, and where the store keeps its own records."""

from __future__ import annotations

from lastgood.stores.base import Key, Prefix, StoreError

UPLOADS = b".uploads"
QUARANTINE = b".quarantine"
ATTESTED = b".attested"
RESERVED = frozenset({UPLOADS, QUARANTINE, ATTESTED})

Path = tuple[bytes, ...]  # the components below the root, as the file system spells them


def path_of(store: str, key: Key) -> Path:
    """The components of a key, byte for byte. StoreError if a directory cannot hold it exactly, or
    if it lies in a folder that the store keeps for itself."""
    try:
        path = tuple(key.encode("utf-8").split(b"/"))
    except UnicodeEncodeError as error:
        raise StoreError(store=store, key=key, reason=f"not a UTF-8 key: {error.reason}") from error
    if b"\0" in key.encode("utf-8"):
        raise StoreError(store=store, key=key, reason="a key cannot hold NUL")
    if any(part in (b"", b".", b"..") for part in path):
        raise StoreError(store=store, key=key, reason="a key has no empty, `.` or `..` component")
    if path[0] in RESERVED:
        raise StoreError(store=store, key=key, reason="this folder belongs to the store itself")
    return path


def prefix_path_of(store: str, prefix: Prefix) -> Path:
    """The components of a prefix, none for the whole store. StoreError unless it ends with `/`."""
    if prefix == "":
        return ()
    if not prefix.endswith("/"):
        raise StoreError(store=store, key=prefix, reason="a prefix ends with `/`")
    return path_of(store, Key(prefix[:-1]))


def prefix_in_bucket(prefix: str) -> str:
    """What all keys of a store begin with in its bucket, as its configuration says it: nothing, or
    it ends with `/`."""
    return f"{prefix.strip('/')}/" if prefix.strip("/") else ""
