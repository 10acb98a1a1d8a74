"""Jobs that write into a `direct` store as another account than the coordinator's, both with a
umask that gives nobody anything."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lastgood.rules.store_profile import Ability
from lastgood.runner import FolderNotOurs
from lastgood.runner.disk.files import measured
from lastgood.runner.sending.direct import write_direct
from lastgood.runner.working.progress import Progress
from lastgood.runner.working.stopping import Stop
from lastgood.stores.base import ForeignEntry, Key, Outcome, Prefix, StoreError
from lastgood.stores.file import FileStore
from lastgood.stores.profile import probe
from tests.factories import direct_ticket

COORDINATOR, JOB, GROUP = 64001, 64002, 64010
COPY = Prefix("demo/run/1/7/")
OBJECTS = Prefix(f"{COPY}objects/")
PATHS = ["deep/er/a", "deep/b", "c", ".uploads/d"]

two_accounts = pytest.mark.skipif(os.geteuid() != 0, reason="only root acts as two accounts")


@contextmanager
def acting_as(uid: int, *groups: int) -> Iterator[None]:
    ours, umask = os.getgroups(), os.umask(0o077)
    os.setgroups(groups)
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(ours)
        os.umask(umask)


@pytest.fixture
def root() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="lastgood-shared-"))
    (folder / "store").mkdir()
    folder.chmod(0o755)
    yield folder / "store"
    for path, _, _ in os.walk(folder):
        os.chmod(path, 0o700)
    shutil.rmtree(folder)


@pytest.fixture
def shared(root: Path) -> Path:
    os.chown(root, COORDINATOR, GROUP)
    root.chmod(0o2750)
    return root


def opened(root: Path, *groups: int) -> Path:
    """An attempt's folder as the coordinator opens it to a job."""
    with acting_as(COORDINATOR, *groups):
        return Path(FileStore("local", root, direct=True).make_direct(OBJECTS, PATHS))


def save(folder: Path, content: bytes = b"bytes", *groups: int) -> None:
    """As a job does. Its own files are elsewhere."""
    with acting_as(JOB, *groups), tempfile.TemporaryDirectory() as made:
        for path in PATHS:
            (Path(made) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(made) / path).write_bytes(content)
        for file in measured(made):
            write_direct(direct_ticket(folder), file, None, Progress(0), Stop())


@two_accounts
def test_a_group_that_shares_the_store_has_a_jobs_files_kept_and_deleted_by_another_account(
    shared: Path,
) -> None:
    folder = opened(shared, GROUP)
    save(folder, b"an earlier try", GROUP)
    save(folder, b"bytes", GROUP)
    with acting_as(COORDINATOR, GROUP):
        store = FileStore("local", shared, direct=True)
        store.protect(OBJECTS)
        assert [store.read(Key(f"{OBJECTS}{path}")) for path in PATHS] == [b"bytes"] * 4
        # A prepare that comes late does not open again what a commit has closed.
        store.make_direct(OBJECTS, PATHS)
        store.put_new(Key(f"{COPY}COMMITTED"), b"marker")
    with acting_as(JOB, GROUP):
        assert (folder / "deep/b").read_bytes() == b"bytes"
        for write in (
            lambda: (folder / "deep/b").write_bytes(b"other"),
            lambda: (folder / "deep/b").unlink(),
            lambda: (folder / "deep/more").touch(),
            lambda: (folder.parent / "more").touch(),
            lambda: os.listdir(folder.parent),
        ):
            with pytest.raises(PermissionError):
                write()
    with acting_as(COORDINATOR, GROUP):
        store.quarantine(COPY, [])
        found = list(store.list(COPY))
        assert len(found) == 5
        assert {one.outcome for one in store.delete(found)} == {Outcome.GONE}
        assert not (shared / "demo").exists()


@two_accounts
@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_files_that_the_coordinator_could_not_delete_are_not_written(root: Path, mode: int) -> None:
    os.chown(root, COORDINATOR, COORDINATOR)
    folder = opened(root)
    for path in (folder, *folder.parents):
        if path.is_relative_to(root):
            path.chmod(mode)
    with pytest.raises(FolderNotOurs, match=r"uid 64002.*uid 64001.*chmod g\+s"):
        save(folder)
    assert not [path for path in folder.rglob("*") if path.stat().st_size and path.is_file()]


@two_accounts
def test_a_coordinator_outside_of_the_group_is_told_when_the_store_is_probed(shared: Path) -> None:
    with acting_as(COORDINATOR), pytest.raises(StoreError, match="has to be in the group"):
        probe(FileStore("local", shared, direct=True))
    with acting_as(COORDINATOR, GROUP):
        found = probe(FileStore("local", shared, direct=True))
        assert found.has(Ability.CONDITIONAL_PUT)
        assert not (shared / "probe").exists()


@two_accounts
@pytest.mark.parametrize("mode", [0o600, 0o660], ids=["unreadable", "writable"])
def test_what_a_job_keeps_to_itself_is_named_as_no_object(shared: Path, mode: int) -> None:
    folder = opened(shared, GROUP)
    with acting_as(JOB, GROUP):
        (folder / "deep/b").touch()
        (folder / "deep/b").chmod(mode)
    with acting_as(COORDINATOR, GROUP), pytest.raises(ForeignEntry, match="uid 64002") as told:
        FileStore("local", shared, direct=True).protect(OBJECTS)
    assert told.value.facts["key"] == "b"


@pytest.mark.parametrize(("bit", "passing", "writing"), [(0o2000, 0o010, 0o070), (0, 0, 0)])
def test_a_group_may_write_into_the_open_attempt_alone_and_only_where_it_shares_the_store(
    root: Path, bit: int, passing: int, writing: int
) -> None:
    root.chmod(bit | 0o750)
    umask = os.umask(0o077)
    try:
        folder = Path(FileStore("local", root, direct=True).make_direct(OBJECTS, PATHS))
    finally:
        os.umask(umask)
    modes = {
        str(path.relative_to(root)): stat.S_IMODE(path.stat().st_mode) & 0o077
        for path in root.rglob("*")
    }
    inside = ["deep", "deep/er", ".uploads"] if bit else []
    assert modes == {
        "demo": passing,
        "demo/run": passing,
        "demo/run/1": passing,
        "demo/run/1/7": passing,
        **{str((folder / name).relative_to(root)): writing for name in ("", *inside)},
    }
