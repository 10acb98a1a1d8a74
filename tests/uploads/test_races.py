"""What a clean-up meets: parts that come late, and commits that come at the same moment. An attempt
is committed or closed, never both, and a committed object keeps its bytes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from lastgood.errors import AttemptState, LastgoodError
from lastgood.flows.jobs import upload
from lastgood.stores.base import Prefix, StoreError
from lastgood.stores.s3 import S3Store
from tests.retention.world import World
from tests.uploads.writers import ABORT_AFTER, OBJECTS, Begun, begin, clean, history

WAIT_SECONDS = 60


class Stopped:
    """A store one of whose calls stops, before or after it was made, until it may go on."""

    def __init__(self, store: Any, call: str, *, after: bool = False) -> None:
        self._store, self._call, self._after = store, call, after
        self.reached, self.goes_on = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._stopping(found) if name == self._call else found

    def _stopping(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def stopped(*said: Any, **named: Any) -> Any:
            answer = call(*said, **named) if self._after else None
            self.reached.set()
            assert self.goes_on.wait(WAIT_SECONDS)
            return answer if self._after else call(*said, **named)

        return stopped


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as found:
        yield found


def nothing_is_left(begun: Begun) -> bool:
    prefix = Prefix(begun.attempt.prefix)
    store = begun.world.store
    return not list(store.list(prefix)) and not list(store.uploads(prefix))


def test_a_put_that_is_stopped_past_its_grant_leaves_nothing(
    world: World, threads: ThreadPoolExecutor
) -> None:
    begun = begin(world).send("b.bin")
    slot = upload.slot_for(world.catalog, world.stores, begun.attempt, "a.bin", 1, 64)
    reached, goes_on = threading.Event(), threading.Event()

    def chunks() -> Iterator[bytes]:
        yield b"a" * 32
        reached.set()
        assert goes_on.wait(WAIT_SECONDS)
        yield b"a" * 32

    putting = threads.submit(upload.receive, world.catalog, slot, chunks())
    assert reached.wait(WAIT_SECONDS)
    world.advance(ABORT_AFTER)
    assert clean(world)["closed"] == 1
    goes_on.set()
    with pytest.raises(AttemptState):
        putting.result(WAIT_SECONDS)
    assert nothing_is_left(begun)
    assert clean(world)["incomplete_uploads"] == 0


def test_a_prepare_that_is_stopped_past_the_closing_leaves_no_upload(
    world: World, threads: ThreadPoolExecutor
) -> None:
    begin(world)
    stopped = Stopped(world.store, "create_upload", after=True)
    world.stores["local"] = stopped
    preparing = threads.submit(begin, world, 2)
    assert stopped.reached.wait(WAIT_SECONDS)
    world.stores["local"] = world.store
    world.advance(ABORT_AFTER)
    assert clean(world)["closed"] == 2
    stopped.goes_on.set()
    with pytest.raises(AttemptState):
        preparing.result(WAIT_SECONDS)
    assert list(world.store.uploads(Prefix(""))) == []


def test_a_clean_up_leaves_a_completion_that_is_under_way_alone(
    world: World, threads: ThreadPoolExecutor
) -> None:
    begun = begin(world).send()
    world.advance(ABORT_AFTER)
    stopped = Stopped(world.store, "complete_upload")
    world.stores["local"] = stopped
    committing = threads.submit(begun.commit)
    assert stopped.reached.wait(WAIT_SECONDS)
    world.stores["local"] = world.store
    told = clean(world)
    assert (told["aborting"], told["stray_uploads_aborted"], begun.state) == (0, 0, "sealed")
    stopped.goes_on.set()
    assert committing.result(WAIT_SECONDS).checkpoint is not None
    assert_committed(begun)


def test_a_commit_that_comes_while_uploads_are_aborted_is_refused(
    world: World, threads: ThreadPoolExecutor
) -> None:
    begun = begin(world).send()
    world.advance(ABORT_AFTER)
    stopped = Stopped(world.store, "abort_upload")
    world.stores["local"] = stopped
    cleaning = threads.submit(clean, world)
    assert stopped.reached.wait(WAIT_SECONDS)
    world.stores["local"] = world.store
    with pytest.raises(AttemptState):
        begun.commit()
    stopped.goes_on.set()
    assert cleaning.result(WAIT_SECONDS)["closed"] == 1
    assert nothing_is_left(begun)


def assert_committed(begun: Begun) -> None:
    assert begun.state == "committed"
    for path, data in begun.objects.items():
        assert begun.world.store.read(begun.key(path)) == data
    assert list(begun.world.store.uploads(Prefix(begun.attempt.prefix))) == []


@pytest.mark.parametrize("where", ["world", "s3_world", "ceph_world"])
def test_of_an_abort_and_a_completion_at_once_one_wins_whole(
    request: pytest.FixtureRequest, threads: ThreadPoolExecutor, where: str
) -> None:
    world: World = request.getfixturevalue(where)
    world.promote({"uploads": {"abort_after": "1h", "margin_over_p99": 1}})
    # In stages of their own; the youngest commits first, so that none makes the others too young.
    rounds = [begin(world, stage=f"stage-{number}").send() for number in range(4)]
    world.advance(ABORT_AFTER)
    gate = threading.Barrier(2)

    def clean_at_once() -> dict[str, Any]:
        gate.wait(WAIT_SECONDS)
        return clean(world)

    def commit_at_once() -> list[bool]:
        gate.wait(WAIT_SECONDS)
        return [commits(one) for one in reversed(rounds)]

    cleaning, committing = threads.submit(clean_at_once), threads.submit(commit_at_once)
    told, won = cleaning.result(WAIT_SECONDS), list(reversed(committing.result(WAIT_SECONDS)))
    clean(world)
    assert told["failed"] == {}
    for one, committed in zip(rounds, won, strict=True):
        if committed:
            assert_committed(one)
        else:
            assert one.state == "closed"
            assert nothing_is_left(one)
    assert told["closed"] + sum(won) == len(rounds)


def commits(one: Begun) -> bool:
    try:
        return one.commit().checkpoint is not None
    except LastgoodError:
        return False


class LateParts:
    """Lets parts of an upload arrive after it was aborted and said to be gone, so many times, as a
    server does to whom they were on their way."""

    def __init__(self, store: S3Store, times: int) -> None:
        from moto.s3.models import s3_backends

        self._uploads = s3_backends["123456789012"]["aws"].buckets[store.bucket].multiparts
        self._times = times
        self._known = dict(self._uploads)
        store._client.meta.events.register("after-call.s3.ListParts", self._listed)

    def _listed(self, http_response: Any, **_: Any) -> None:
        if http_response.status_code == 404 and self._times and not self._uploads:
            self._times -= 1
            self._uploads.update(self._known)


def test_parts_that_arrive_after_the_abort_are_aborted_until_none_is_left(
    s3_world: World, bucket: S3Store
) -> None:
    begun = begin(s3_world, objects={"a.bin": OBJECTS["a.bin"]}).send()
    s3_world.advance(ABORT_AFTER)
    LateParts(bucket, times=3)
    told = clean(s3_world)
    assert (told["closed"], told["failed"]) == (1, {})
    (entry,) = begun.entries()
    assert history(s3_world, entry)[-5:] == [
        ("try", "gone"),
        ("try", "gone"),
        ("try", "gone"),
        ("try", "gone"),
        ("state", "gone"),
    ]
    assert (entry.state, entry.tries) == ("gone", 4)
    assert nothing_is_left(begun)


def test_a_part_that_arrives_after_the_closing_is_aborted_by_the_next_run(
    s3_world: World, bucket: S3Store
) -> None:
    begun = begin(s3_world, objects={"a.bin": OBJECTS["a.bin"]}).send()
    late = LateParts(bucket, times=0)
    s3_world.advance(ABORT_AFTER)
    assert clean(s3_world)["closed"] == 1
    late._uploads.update(late._known)
    told = clean(s3_world)
    assert (told["stray_uploads_aborted"], told["incomplete_uploads"]) == (1, 0)
    (entry,) = begun.entries()
    assert [what for kind, what in history(s3_world, entry) if kind == "state"] == [
        "waiting",
        "fenced",
        "aborting",
        "gone",
        "waiting",
        "aborting",
        "gone",
    ]
    assert nothing_is_left(begun)


def test_a_put_to_a_real_server_that_is_stopped_past_its_grant(ceph_world: World) -> None:
    """The server let it in while it was granted; its end comes after the closing."""
    begun = begin(ceph_world, objects={"a.bin": b"a" * 64})
    granted = upload.grant(
        ceph_world.catalog, ceph_world.stores, begun.attempt, {"a.bin": [1]}
    ).urls[0]
    where = urlsplit(granted.url)
    assert where.hostname is not None
    with socket.create_connection((where.hostname, where.port or 80), WAIT_SECONDS) as put:
        head = f"PUT {where.path}?{where.query} HTTP/1.1\r\nHost: {where.netloc}\r\n"
        put.sendall(f"{head}Content-Length: 64\r\nConnection: close\r\n\r\n".encode() + b"a" * 32)
        ceph_world.advance(ABORT_AFTER)
        assert clean(ceph_world)["closed"] == 1
        put.sendall(b"a" * 32)
        answer = put.recv(4096).split(b"\r\n", 1)[0]
    assert b"404" in answer or b"200" in answer  # some keep the part of an upload that is gone
    ceph_world.advance(timedelta(minutes=30))
    told = clean(ceph_world)
    assert (told["failed"], told["incomplete_uploads"]) == ({}, 0)
    assert nothing_is_left(begun)
    assert begun.state == "closed"


@pytest.mark.parametrize("where", ["world", "ceph_world"])
def test_parts_that_are_sent_while_they_are_aborted_leave_nothing(
    request: pytest.FixtureRequest, where: str
) -> None:
    """Senders that ask for no leave, as a paused job with old URLs would: to the store itself."""
    world: World = request.getfixturevalue(where)
    begun = begin(world, objects={f"{number}.bin": b"x" * 64 for number in range(6)})
    world.advance(ABORT_AFTER)
    gate = threading.Barrier(len(begun.objects) + 1)

    def send_until_refused(path: str) -> int:
        gate.wait(WAIT_SECONDS)
        sent = 0
        while True:
            try:
                begun.send(path)
            except StoreError:
                return sent
            sent += 1

    with ThreadPoolExecutor(len(begun.objects)) as senders:
        sending = [senders.submit(send_until_refused, path) for path in begun.objects]
        gate.wait(WAIT_SECONDS)
        told = clean(world)
        for one in sending:
            one.result(WAIT_SECONDS)
    if not told["closed"]:  # parts came after each of the aborts: the next run goes on
        assert begun.state == "aborting"
    told = clean(world)
    assert (told["failed"], told["incomplete_uploads"], begun.state) == ({}, 0, "closed")
    assert nothing_is_left(begun)
    assert {one.state for one in begun.entries()} == {"gone"}
