"""Things that tests of several parts need made."""

from __future__ import annotations

from lastgood.stores.base import Key, Part, Store, StoredObject, UploadId
from lastgood.stores.parts import part_count


def send_parts(store: Store, key: Key, upload_id: UploadId, data: bytes) -> list[Part]:
    """Send all of an object's parts through the store."""
    size = store.part_bytes(len(data))
    sent = []
    for number in range(1, part_count(len(data), size) + 1):
        piece = data[(number - 1) * size : number * size]
        sent.append(store.write_part(key, upload_id, number, len(piece), [piece]))
    return sent


def upload_object(store: Store, key: str, data: bytes) -> StoredObject:
    """Upload a whole object."""
    upload_id = store.create_upload(Key(key), len(data))
    return store.complete_upload(Key(key), upload_id, send_parts(store, Key(key), upload_id, data))
