"""What travels between the ranks of a save: the ticket out, the records of what was sent back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Literal

from lastgood.rules.manifest import ManifestObject
from lastgood.runner.wire.http import Answer

How = Literal["presigned", "endpoint", "direct"]
ObjectRecord = ManifestObject  # a rank's answer is the object as the manifest will name it


@dataclass(frozen=True, slots=True)
class Slot:
    """The place that the coordinator made for one object."""

    path: str
    size_bytes: int
    part_bytes: int | None  # None where the store takes no parts
    parts: int

    def part_size(self, number: int) -> int:
        """The bytes of part `number`, counted from 1."""
        if self.part_bytes is None:
            return self.size_bytes
        return min(self.part_bytes, self.size_bytes - (number - 1) * self.part_bytes)


@dataclass(frozen=True, slots=True)
class Ticket:
    """Permission to upload the objects of one attempt, and nothing else.

    `to_text` and `from_text` carry it to other ranks by whatever means the job has. It holds the
    attempt's fencing token: treat it as a secret until the checkpoint is committed.
    """

    url: str
    attempt: str
    fencing_token: str = field(repr=False)
    checkpoint: str  # project/workload/stage/generation.sequence
    sequence: int
    step: int
    how: How
    direct_path: str | None
    renew_every: timedelta
    slots: Mapping[str, Slot] = field(repr=False)  # by path
    part_sha256: bool = False  # a part is granted for its SHA-256, and the store checks it

    @classmethod
    def from_prepared(
        cls,
        answer: Answer,
        sizes: Mapping[str, int],
        *,
        url: str,
        step: int,
    ) -> Ticket:
        """Read the answer of `POST checkpoints/prepare` for objects of these sizes (bytes)."""
        slots = {
            made["path"]: Slot(
                made["path"], sizes[made["path"]], made.get("part_bytes"), made.get("parts") or 1
            )
            for made in answer["objects"]
        }
        return cls(
            url=url,
            attempt=answer["attempt"],
            fencing_token=answer["fencing_token"],
            checkpoint=answer["checkpoint"],
            sequence=int(answer["checkpoint"].rpartition(".")[2]),
            step=step,
            how=answer["how"],
            direct_path=answer.get("direct_path"),
            renew_every=answer.renewal_of("grant_expires_at"),
            slots=slots,
            part_sha256=bool(answer.get("part_sha256", False)),
        )

    def to_text(self) -> str:
        """The ticket as JSON."""
        seconds = self.renew_every.total_seconds()
        slots = [asdict(slot) for slot in self.slots.values()]
        fields = {name: getattr(self, name) for name in _PLAIN}
        return json.dumps(fields | {"renew_seconds": seconds, "slots": slots})

    @classmethod
    def from_text(cls, text: str) -> Ticket:
        """The inverse of `to_text`."""
        fields = json.loads(text)
        slots = [Slot(**slot) for slot in fields.pop("slots")]
        renew_every = timedelta(seconds=fields.pop("renew_seconds"))
        return cls(renew_every=renew_every, slots={slot.path: slot for slot in slots}, **fields)


_PLAIN = (
    "url",
    "attempt",
    "fencing_token",
    "checkpoint",
    "sequence",
    "step",
    "how",
    "direct_path",
    "part_sha256",
)


def records_to_text(records: Sequence[ObjectRecord]) -> str:
    """What a rank sends back to the one that commits, as JSON."""
    return json.dumps([record.to_json() for record in records])


def records_from_text(text: str) -> list[ObjectRecord]:
    """The inverse of `records_to_text`. The commit checks every value."""
    return [
        ObjectRecord(
            path=record["path"],
            size_bytes=record["bytes"],
            sha256=record["sha256"],
            rank=record["rank"],
            part_bytes=record["part_bytes"],
            part_sha256=None if record["part_sha256"] is None else tuple(record["part_sha256"]),
        )
        for record in json.loads(text)
    ]
