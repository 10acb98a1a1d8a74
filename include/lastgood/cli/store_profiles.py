"""Commands about what a store was found to do: probe, profile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from lastgood.catalog.settings.store_profiles import KeptProfile
from lastgood.cli.exits import NO
from lastgood.cli.opening import actor, services
from lastgood.cli.output import Json, print_json, print_table, say
from lastgood.flows import store_profile
from lastgood.reports.words import instant
from lastgood.rules.store_profile import MEANINGS, Ability, choices

Store = Annotated[str, typer.Argument(metavar="STORE", help="Its name, as its file names it.")]


def probe(name: Store, json: Json = False) -> None:
    """Ask a store anew what it does, by doing it, and keep the answers.

    What is written lies below `probe/` and is removed again. Exits with 1 if the store is not fit
    to hold checkpoints.
    """
    with services() as opened:
        kept = store_profile.probe(opened.catalog, name, actor=actor())
        unfit = store_profile.unfit(opened.catalog, kept)
    _show(kept, unfit, json)
    if unfit:
        raise typer.Exit(NO)


def profile(
    name: Store,
    history: Annotated[
        bool, typer.Option("--history", help="Every probe, and what it found otherwise.")
    ] = False,
    json: Json = False,
) -> None:
    """What a store was found to do, and what is done by it."""
    with services() as opened:
        if history:
            _show_history(store_profile.history(opened.catalog, name), json)
            return
        kept = store_profile.newest(opened.catalog, name)
        unfit = store_profile.unfit(opened.catalog, kept)
    _show(kept, unfit, json)


def _show_history(probes: Sequence[store_profile.Probe], json: bool) -> None:
    if json:
        print_json({"probes": [one.to_json() for one in probes]})
        return
    rows = [
        [
            instant(one.kept.recorded_at),
            one.kept.recorded_by,
            "; ".join(f"{name} {was} -> {now}" for name, (was, now) in one.changed.items())
            or ("first asked" if one is probes[-1] else "nothing"),
        ]
        for one in probes
    ]
    print_table(["asked", "by", "changed"], rows, "")


def _show(kept: KeptProfile, unfit: dict[str, str], json: bool) -> None:
    if json:
        print_json(store_profile.document(kept, unfit))
        return
    say(f"{kept.store}, asked by {kept.recorded_by} at {instant(kept.recorded_at)}")
    rows = [
        [ability, found.answer, MEANINGS[ability], found.evidence]
        for ability in Ability
        for found in [kept.found.finding(ability)]
    ]
    print_table(["ability", "answer", "meaning", "evidence"], rows, "Nothing was asked.")
    print_table(["subject", "what is done"], [list(one) for one in choices(kept.found).items()], "")
    for word, reason in unfit.items():
        say(f"unfit: {reason} ({word})")
