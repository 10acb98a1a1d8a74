"""What lies below a prefix of a file store: the sizes of its files, and what of them no listing
shows."""

from __future__ import annotations

import os
from contextlib import suppress

from lastgood.stores.base import Prefix, Usage
from lastgood.stores.file_uploads import FileUploads
from lastgood.stores.keys import ATTESTED, QUARANTINE, prefix_path_of
from lastgood.stores.tree import Tree
from lastgood.stores.walk import Tally


def file_usage(tree: Tree, uploads: FileUploads, prefix: Prefix) -> Usage:
    """See `base.Store.usage`."""
    path = prefix_path_of(tree.store, prefix)
    tally = Tally()
    with tree.translated(prefix, "account"):
        for place in (path, (QUARANTINE, *path)):
            with (
                suppress(FileNotFoundError, NotADirectoryError),
                tree.folder(place) as folder,
            ):
                tally.add_below(folder, skip_reserved=place == ())
        causes = _unlisted(tree, uploads, prefix, tally)
        disk = os.statvfs(tree.root)
    return Usage(
        tally.used_bytes,
        disk.f_blocks * disk.f_frsize,
        how="file sizes",
        allocated_bytes=tally.allocated_bytes,
        causes={cause: size for cause, size in causes.items() if size},
    )


def _unlisted(tree: Tree, uploads: FileUploads, prefix: Prefix, tally: Tally) -> dict[str, int]:
    """Count what is neither a listed object nor a finished part, and name it."""
    unfinished = records = stray = 0
    for upload in uploads.held(prefix):
        records += upload.record_bytes
        if upload.data is not None and tally.add(upload.data):
            beyond = upload.data.st_size - upload.part_bytes
            unfinished += beyond if upload.began else 0
            stray += 0 if upload.began else beyond
        else:
            tally.repeated_bytes += upload.part_bytes
    if prefix == "":
        records += uploads.scratch_bytes()
        stray_files = uploads.stray_bytes()
        tally.used_bytes += stray_files
        stray += stray_files
        with suppress(FileNotFoundError), tree.folder((ATTESTED,)) as folder:
            own = Tally()
            own.add_below(folder)
            records += own.used_bytes
    tally.used_bytes += records
    return {
        "store-records": records,
        "unfinished-parts": unfinished,
        "stray-parts": stray,
        "hard-links": -tally.repeated_bytes,
    }
