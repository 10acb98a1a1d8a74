"""Whose a key is, and so which line of the byte equation its bytes are in."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from lastgood.catalog.reconciliation.inventory import OwnedPrefix
from lastgood.rules.byte_equation import AttemptState, CopyState, KeyFacts, Line, classify
from lastgood.rules.layout import (
    CHECKPOINTS_PREFIX,
    CONTROL_PREFIX,
    INVENTORIES_PREFIX,
    AttemptKey,
    ControlKey,
    ControlKind,
    manifest_key,
    parse_key,
)
from lastgood.stores.base import StoredObject

SHARED = "-"
"""Stands where no project owns a key; no project can have this name."""
_FOLDERS = 2
_STAGE_FOLDERS = 4  # checkpoints/<project>/<workload>/<stage>/


class Owners:
    """Answers, for keys in ascending order, which prefix owns each."""

    def __init__(self, owned: Iterable[OwnedPrefix], projects: Collection[str]) -> None:
        self._coming = iter(owned)
        self._next = next(self._coming, None)
        self._projects = projects
        self._current: Belonging | None = None

    def belongs(self, key: str) -> Belonging:
        """Where `key` belongs."""
        passed = None
        while self._next is not None and self._next.prefix <= key:
            passed, self._next = self._next, next(self._coming, None)
        if passed is not None:
            self._current = Belonging.to(passed)
        if self._current is not None and key.startswith(self._current.unit):
            return self._current
        return Belonging(self._project_of(key), unit_of(key), None, None)

    def _project_of(self, key: str) -> str:
        """The project whose part of the store `key` lies in, or SHARED."""
        for folder in (CHECKPOINTS_PREFIX, f"{CONTROL_PREFIX}stages/"):
            if key.startswith(folder):
                project = key[len(folder) :].partition("/")[0]
                return project if project in self._projects else SHARED
        return SHARED


@dataclass(frozen=True, slots=True)
class Belonging:
    """The project, the unit and, where there is one, the owner of a key; `attempt_key` is any key
    of the attempt that owns it."""

    project: str
    unit: str
    owner: OwnedPrefix | None
    attempt_key: AttemptKey | ControlKey | None
    _known: dict[tuple[bool, bool, bool, bool], Line] = field(default_factory=dict)

    @classmethod
    def to(cls, owner: OwnedPrefix) -> Belonging:
        """What the keys below an owned prefix have in common."""
        attempt_key = None if owner.is_stage else parse_key(manifest_key(owner.prefix))
        return cls(owner.project, owner.prefix, owner, attempt_key)

    def line(
        self,
        key: str,
        item: StoredObject | None = None,
        *,
        expected: bool = False,
        pending_upload: bool = False,
    ) -> Line:
        """The line of these bytes. Every key below an attempt's prefix is the attempt's, also one
        that no builder of keys would make; all of them that are alike get the same answer."""
        is_latest = item is None or item.is_latest
        is_marker = item is not None and item.is_delete_marker
        if self.owner is None or self.owner.attempt is None:
            parsed = parse_key(key)
            known = isinstance(parsed, ControlKey) and self._knows(parsed)
            return classify(
                KeyFacts(parsed if known else None, is_latest=is_latest, is_delete_marker=is_marker)
            )
        alike = (expected, pending_upload, is_latest, is_marker)
        if alike not in self._known:
            self._known[alike] = classify(
                KeyFacts(
                    self.attempt_key,
                    attempt=AttemptState(self.owner.attempt),
                    copy=None if self.owner.copy is None else CopyState(self.owner.copy),
                    expected=expected,
                    lease_live=self.owner.lease_live,
                    is_latest=is_latest,
                    is_delete_marker=is_marker,
                    pending_upload=pending_upload,
                )
            )
        return self._known[alike]

    def _knows(self, key: ControlKey) -> bool:
        if key.kind in (ControlKind.CATALOG, ControlKind.INCARNATION, ControlKind.DIGEST):
            return True
        if key.kind is ControlKind.INVENTORY:
            return is_kept_inventory(self.owner)
        if self.owner is None or key.number is None:
            return False
        is_generation = key.kind is ControlKind.GENERATION
        return key.number <= (self.owner.generation if is_generation else self.owner.event)


def is_kept_inventory(owner: OwnedPrefix | None) -> bool:
    """Whether a prefix is a kept inventory's."""
    return owner is not None and owner.prefix.startswith(INVENTORIES_PREFIX)


def unit_of(key: str) -> str:
    """What a key without an owner is gathered under: the attempt's prefix that it reads as, below
    `checkpoints/` the stage that its folders name, else at most its first two folders."""
    parsed = parse_key(key)
    if parsed is not None and not isinstance(parsed, ControlKey):
        return parsed.prefix
    folders = key.split("/")[:-1]
    deepest = _STAGE_FOLDERS if key.startswith(CHECKPOINTS_PREFIX) else _FOLDERS
    return "/".join(folders[:deepest]) + "/" if folders else key
