"""What every part of a probe works with: what it writes, and what it finds."""

from __future__ import annotations

from lastgood.rules.store_profile import Ability, Answer, Finding
from lastgood.stores.base import Key, Prefix, Store

FIRST, SECOND = b"what was written first", b"what came second"
ODD_NAMES = ("a+b c", "%20", "é")  # encoded, or not, by whoever lists them

Findings = dict[Ability, Finding]


def uploads_listed(store: Store, prefix: Prefix) -> Finding:
    """Whether pending uploads are all listed below a prefix, under their exact keys."""
    begun = {Key(f"{prefix}{name}") for name in ODD_NAMES}
    ids = {key: store.create_upload(key, 1) for key in begun}
    listing = store.uploads(prefix)
    listed = {upload.key for upload in listing}
    for key, upload_id in ids.items():
        store.abort_upload(key, upload_id)
    if listed == begun and listing.complete:
        return Finding(Answer.YES, f"{len(begun)} of {len(begun)}, odd characters included")
    return Finding(Answer.NO, f"{len(listed & begun)} of {len(begun)}")
