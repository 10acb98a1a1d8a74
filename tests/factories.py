"""Things that tests of several parts need made."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from lastgood.runner import Ticket
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


def direct_ticket(folder: Path) -> Ticket:
    """What a coordinator gives a job that writes into the folder itself."""
    return Ticket(
        url="http://127.0.0.1/lastgood",
        attempt="x",
        fencing_token="secret",
        checkpoint="p/w/s/1.1",
        sequence=1,
        step=1,
        how="direct",
        direct_path=str(folder),
        renew_every=timedelta(minutes=1),
        slots={},
    )
