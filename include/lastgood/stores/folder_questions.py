"""Who asks a folder in a hurry waits for a bounded time, also where its mount hangs.

A system call on a mount whose server is away does not return, and nothing ends it. So a hurried
question is asked by a thread of its own, which is left behind once the folder has said nothing for
ANSWER_WITHIN. While one is left behind nobody asks that folder again: all others are told at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from lastgood.stores import hurry
from lastgood.stores.base import StoreError

AT_ONCE = 16  # questions to one folder, and so the most threads that it can keep
T = TypeVar("T")


class FolderHangs(StoreError):
    """Store {store} does not answer: what was asked of its folder {folder} did not return for
    {seconds} s, as where the server of a mount is away. Mend the mount; until it returns, nobody
    asks again."""

    type = "store-hangs"


@runtime_checkable
class LiesInFolder(Protocol):
    """A store whose bytes are files below `root`."""

    name: str
    root: Path


def answered(store: object, question: Callable[[], T]) -> T:
    """The answer to a question that is asked of an open store. Raises FolderHangs, in a hurry
    alone, where the store lies in a folder that says nothing."""
    if isinstance(store, LiesInFolder):
        return answered_in(store.root, store.name, question)
    return question()


def answered_in(folder: Path, store: str, question: Callable[[], T]) -> T:
    """The same, of a store that need not be open."""
    if not hurry.HURRY.get():
        return question()
    return _folders[str(folder)].answer(store, question)


def still_answers() -> None:
    """Told by what is asked: the folder answered something just now, so it does not hang."""
    question = _ASKED.get()
    if question is not None:
        question.moved_at = time.monotonic()


@dataclass(slots=True, eq=False)
class _Question:
    answer: Future[Any] = field(default_factory=Future)
    moved_at: float = field(default_factory=time.monotonic)

    @property
    def left_seconds(self) -> float:
        """How long it is waited for, unless the folder answers something meanwhile."""
        return self.moved_at + hurry.ANSWER_WITHIN.total_seconds() - time.monotonic()


_ASKED: ContextVar[_Question | None] = ContextVar("asked", default=None)


class _Folder:
    """What is being asked of one folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._out: list[_Question] = []
        self._room = threading.Semaphore(AT_ONCE)

    def answer(self, store: str, question: Callable[[], T]) -> T:
        patience = hurry.ANSWER_WITHIN.total_seconds()
        hangs = partial(FolderHangs, store=store, folder=self._folder, seconds=f"{patience:g}")
        if self._hangs() or not self._room.acquire(timeout=patience):
            raise hangs()
        asked = _Question()
        with self._lock:
            self._out.append(asked)
        context = copy_context()
        context.run(_ASKED.set, asked)
        asking = threading.Thread(
            target=context.run, args=(self._ask, asked, question), name=f"ask-{store}", daemon=True
        )
        asking.start()
        while not asked.answer.done():
            if asked.left_seconds <= 0:
                raise hangs()
            wait([asked.answer], timeout=asked.left_seconds)
        answer: T = asked.answer.result()
        return answer

    def _hangs(self) -> bool:
        with self._lock:
            return any(one.left_seconds <= 0 for one in self._out)

    def _ask(self, asked: _Question, question: Callable[[], Any]) -> None:
        answer, failure = None, None
        try:
            answer = question()
        except BaseException as error:  # whoever waits gets it
            failure = error
        with self._lock:
            self._out.remove(asked)
        self._room.release()
        if failure is None:
            asked.answer.set_result(answer)
        else:
            asked.answer.set_exception(failure)


class _Folders(dict[str, _Folder]):
    def __missing__(self, folder: str) -> _Folder:
        return self.setdefault(folder, _Folder(folder))


_folders = _Folders()
