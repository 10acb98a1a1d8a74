"""Generations: the incarnations of a stage's writer, of which only the newest may write."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from psycopg.types.json import Jsonb

from lastgood.catalog import history
from lastgood.catalog.db import Transaction
from lastgood.catalog.jobs.stages import Stage
from lastgood.catalog.settings.tokens import new_token, token_hash
from lastgood.errors import FencedGeneration, IdempotencyConflict, LeaseExpired, NotFound

How = Literal["fenced", "released", "lapsed"]


@dataclass(frozen=True, slots=True)
class Writer:
    """Who holds a token of a generation. Whether it may still write is decided under locks."""

    project: str
    stage_id: int
    generation: int


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation with its lease, and how it ended if it did."""

    project: str
    stage_id: int
    generation: int
    idempotency_key: str
    holder: str
    fresh: bool
    resumed_from: tuple[int, int] | None
    preemption_id: UUID | None
    recorded_at: datetime
    expires_at: datetime
    live: bool  # its lease had not run out when this was read
    fenced: str | None  # the reason, where it was fenced
    released: bool
    lapsed: bool

    @property
    def ended(self) -> bool:
        return self.fenced is not None or self.released or self.lapsed

    @property
    def active(self) -> bool:
        """Whether a writer holds it now."""
        return self.live and not self.ended

    @property
    def actor(self) -> str:
        return f"runner:{self.holder}"


_SELECT = """
    SELECT g.project, g.stage_id, g.generation, g.idempotency_key, g.holder, g.fresh,
           g.resumed_from_generation, g.resumed_from_sequence, g.preemption_id, g.recorded_at,
           l.expires_at, l.expires_at > catalog_clock() AS live,
           (SELECT e.reason FROM generation_ends e WHERE e.stage_id = g.stage_id
               AND e.generation = g.generation AND e.how = 'fenced') AS fenced,
           EXISTS (SELECT 1 FROM generation_ends e WHERE e.stage_id = g.stage_id
                      AND e.generation = g.generation AND e.how = 'released') AS released,
           EXISTS (SELECT 1 FROM generation_ends e WHERE e.stage_id = g.stage_id
                      AND e.generation = g.generation AND e.how = 'lapsed') AS lapsed
      FROM generations g JOIN generation_leases l USING (stage_id, generation)
"""


def writer_of_token(tx: Transaction, token: str) -> Writer | None:
    """Whose token this is, None for an unknown one."""
    row = tx.execute(
        "SELECT project, stage_id, generation, token_sha256 FROM generation_tokens"
        " WHERE token_sha256 = %s",
        (token_hash(token),),
    ).fetchone()
    if row is None or not hmac.compare_digest(row.pop("token_sha256"), token_hash(token)):
        return None
    return Writer(**row)


def get(tx: Transaction, project: str, stage_id: int, generation: int) -> Generation:
    """One generation. Raises NotFound."""
    row = tx.execute(
        _SELECT + " WHERE g.project = %s AND g.stage_id = %s AND g.generation = %s",
        (project, stage_id, generation),
    ).fetchone()
    if row is None:
        raise NotFound(what="generation", name=str(generation))
    return _generation(row)


def by_idempotency_key(tx: Transaction, stage: Stage, key: str) -> Generation | None:
    """The generation that an acquire with this key began, if there was one."""
    row = tx.execute(
        _SELECT + " WHERE g.project = %s AND g.stage_id = %s AND g.idempotency_key = %s",
        (stage.project, stage.stage_id, key),
    ).fetchone()
    return _generation(row) if row else None


def begin(
    tx: Transaction,
    stage: Stage,
    *,
    idempotency_key: str,
    holder: str,
    fresh: bool,
    resumed_from: tuple[int, int] | None,
    preemption_id: UUID | None,
    lease: timedelta,
) -> tuple[Generation, history.Event]:
    """Begin the next generation of a locked stage; the caller has fenced the earlier ones."""
    number = stage.generation + 1
    event = history.record(
        tx,
        stage.stage_id,
        "acquired",
        actor=f"runner:{holder}",
        facts={
            "generation": number,
            "resumed_from": None if resumed_from is None else list(resumed_from),
            "fresh": fresh,
            "preemption": None if preemption_id is None else str(preemption_id),
        },
    )
    generation, sequence = resumed_from or (None, None)
    tx.execute(
        """
        INSERT INTO generations (stage_id, generation, project, idempotency_key, holder, fresh,
                    resumed_from_generation, resumed_from_sequence, preemption_id, recorded_at)
             VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
        """,
        (
            stage.stage_id,
            number,
            stage.project,
            idempotency_key,
            holder,
            fresh,
            generation,
            sequence,
            preemption_id,
            event.recorded_at,
        ),
    )
    tx.execute("UPDATE stages SET generation = %s WHERE stage_id = %s", (number, stage.stage_id))
    tx.execute(
        "INSERT INTO generation_leases (stage_id, generation, project, expires_at)"
        " VALUES (%s, %s, %s, catalog_clock() + %s)",
        (stage.stage_id, number, stage.project, lease),
    )
    return get(tx, stage.project, stage.stage_id, number), event


def fence_earlier(tx: Transaction, stage: Stage, *, actor: str, reason: str) -> list[int]:
    """Fence every generation of a locked stage that is not fenced; answers their numbers."""
    return [
        row["generation"]
        for row in tx.execute(
            """
            SELECT g.generation FROM generations g
             WHERE g.stage_id = %s AND NOT EXISTS (
                   SELECT 1 FROM generation_ends e WHERE e.stage_id = g.stage_id
                      AND e.generation = g.generation AND e.how = 'fenced')
             ORDER BY g.generation
            """,
            (stage.stage_id,),
        ).fetchall()
        if fence(tx, stage, row["generation"], actor=actor, reason=reason)
    ]


def fence(tx: Transaction, stage: Stage, generation: int, *, actor: str, reason: str) -> bool:
    """Fence one generation of a locked stage: nothing that it sends can prepare, extend or commit
    from now on. False if it was fenced before."""
    return _end(tx, stage, generation, "fenced", actor=actor, reason=reason)


def release(tx: Transaction, stage: Stage, generation: Generation) -> bool:
    """End a generation of a locked stage by its holder's word. False if it was released before."""
    return _end(
        tx,
        stage,
        generation.generation,
        "released",
        actor=generation.actor,
        reason="released by its holder",
    )


def issue_token(tx: Transaction, generation: Generation) -> str:
    """A further token of a generation. It is shown once and not kept."""
    token = new_token()
    tx.execute(
        "INSERT INTO generation_tokens (token_sha256, project, stage_id, generation, issued_at)"
        " VALUES (%s, %s, %s, %s, catalog_clock())",
        (token_hash(token), generation.project, generation.stage_id, generation.generation),
    )
    return token


def renew(tx: Transaction, generation: Generation, lease: timedelta) -> datetime:
    """Let the lease last this long from now, unless it lasts longer; answers its end (UTC)."""
    row = tx.execute(
        """
        UPDATE generation_leases SET expires_at = greatest(expires_at, catalog_clock() + %s)
         WHERE stage_id = %s AND generation = %s AND project = %s RETURNING expires_at
        """,
        (lease, generation.stage_id, generation.generation, generation.project),
    ).fetchone()
    assert row is not None, "a generation is recorded with its lease"
    expires_at: datetime = row["expires_at"]
    return expires_at


def require_writing(tx: Transaction, stage: Stage, writer: Writer) -> Generation:
    """The writer's generation, if it may still write. The stage is locked, so no other can be
    acquired meanwhile. Raises FencedGeneration, or LeaseExpired once its lapse was recorded."""
    generation = get(tx, writer.project, writer.stage_id, writer.generation)
    if generation.fenced is not None:
        raise fenced(stage, generation.generation, generation.fenced)
    if generation.released:
        raise fenced(stage, generation.generation, "its holder released it")
    if generation.lapsed:
        raise LeaseExpired(
            kind="generation",
            lease=f"of generation {generation.generation} of {stage.name}",
            expires_at=generation.expires_at,
        )
    return generation


def fenced(stage: Stage, generation: int, reason: str) -> FencedGeneration:
    """The error to raise for a writer that must stop."""
    return FencedGeneration(generation=generation, stage=str(stage.name), reason=reason)


def fenced_reason(tx: Transaction, stage: Stage, generation: int) -> str | None:
    """Why a generation was fenced, None if it was not."""
    return get(tx, stage.project, stage.stage_id, generation).fenced


def record_preemption(
    tx: Transaction, stage: Stage, *, idempotency_key: str, notice: object, actor: str
) -> tuple[UUID, datetime]:
    """Store a supplier's notice for a locked stage; the same key again gives the same record.
    Raises IdempotencyConflict if that was another notice."""
    row = tx.execute(
        "SELECT preemption_id, notice, recorded_at FROM preemptions"
        " WHERE stage_id = %s AND idempotency_key = %s",
        (stage.stage_id, idempotency_key),
    ).fetchone()
    if row is None:
        event = history.record(
            tx, stage.stage_id, "preempted", actor=actor, facts={"notice": notice}
        )
        row = tx.execute(
            """
            INSERT INTO preemptions (project, stage_id, idempotency_key, notice, recorded_at)
                 VALUES (%s, %s, %s, %s, %s) RETURNING preemption_id, notice, recorded_at
            """,
            (stage.project, stage.stage_id, idempotency_key, Jsonb(notice), event.recorded_at),
        ).fetchone()
        assert row is not None
    if row["notice"] != notice:
        raise IdempotencyConflict(key=idempotency_key)
    return row["preemption_id"], row["recorded_at"]


def has_preemption(tx: Transaction, stage: Stage, preemption_id: UUID) -> bool:
    """Whether the notice was stored for this stage."""
    row = tx.execute(
        "SELECT 1 FROM preemptions WHERE preemption_id = %s AND stage_id = %s AND project = %s",
        (preemption_id, stage.stage_id, stage.project),
    ).fetchone()
    return row is not None


def _end(
    tx: Transaction, stage: Stage, generation: int, how: How, *, actor: str, reason: str
) -> bool:
    """The event and the end together; nothing if it had this end before."""
    known = tx.execute(
        "SELECT 1 FROM generation_ends WHERE stage_id = %s AND generation = %s AND how = %s",
        (stage.stage_id, generation, how),
    ).fetchone()
    if known is not None:
        return False
    facts = {"generation": generation, "reason": reason}
    event = history.record(tx, stage.stage_id, how, actor=actor, facts=facts)
    tx.execute(
        "INSERT INTO generation_ends (stage_id, generation, project, how, reason, recorded_at)"
        " VALUES (%s, %s, %s, %s, %s, %s)",
        (stage.stage_id, generation, stage.project, how, reason, event.recorded_at),
    )
    return True


def _generation(row: dict[str, object]) -> Generation:
    generation, sequence = row.pop("resumed_from_generation"), row.pop("resumed_from_sequence")
    resumed_from = None if generation is None else (generation, sequence)
    return Generation(**row, resumed_from=resumed_from)  # type: ignore[arg-type]
