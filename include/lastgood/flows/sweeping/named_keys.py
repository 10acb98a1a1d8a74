"""The keys that the catalog knows below a prefix, beside those that the store lists.

A store may leave out of a listing what it has. So each key that the catalog names and a listing
does not is asked for by itself, before a deletion and again before its proof: a deletion is never
proven by a listing alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lastgood.catalog.db import Catalog
from lastgood.catalog.jobs import attempt_objects, attempts, copies
from lastgood.catalog.sweeping.tombstones import Tombstone
from lastgood.flows.quarantine import stored_objects
from lastgood.rules import layout
from lastgood.stores.base import Key, Store, StoredObject


def named(catalog: Catalog, tombstone: Tombstone) -> list[StoredObject]:
    """What the catalog says lay below a tombstone's prefix."""
    with catalog.transaction() as tx:
        if tombstone.copy_id is not None:
            copy = copies.get(tx, tombstone.project, tombstone.copy_id)
            return stored_objects(copy, copies.objects(tx, tombstone.project, tombstone.copy_id))
        assert tombstone.attempt_id is not None
        attempt = attempts.get(tx, tombstone.project, tombstone.attempt_id)
        objects = attempt_objects.of(tx, attempt)
    return [
        StoredObject(Key(layout.marker_key(attempt.prefix)), 0),
        *(
            StoredObject(Key(layout.object_key(attempt.prefix, one.path)), one.size_bytes)
            for one in objects
        ),
        StoredObject(Key(layout.manifest_key(attempt.prefix)), 0),
    ]


def unlisted(
    store: Store, known: Sequence[StoredObject], listed: Iterable[StoredObject]
) -> list[StoredObject]:
    """Those of the known keys that a listing does not show and the store has all the same."""
    seen = {one.key for one in listed}
    found = (store.stat(one.key) for one in known if one.key not in seen)
    return [one for one in found if one is not None]
