"""Tells owners of their overdue findings, as Airflow's notifiers tell.

Without configuration they are logged and counted. The Airflow variable `lastgood_finding_notifiers`
plugs any notifier of Airflow in: a list of `{"notifier": CLASS, "arguments": {...}}`, whose
templated arguments may name `overdue.owner`, `overdue.subject`, `overdue.text`, `overdue.html` and
`overdue.findings`. A `name` tells two of one class apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier

from lastgood.errors import InvalidInput, LastgoodError

if TYPE_CHECKING:
    from airflow.sdk import Context

VARIABLE = "lastgood_finding_notifiers"
LOG = "log"


class NotTold(LastgoodError):
    """Not everybody was told of overdue findings: {failed}. The next try tells only whoever was
    not told yet."""

    type = "not-told"


class OverdueFindings(BaseNotifier):
    """One notification for each owner of overdue findings, once in a run.

    It is a notifier as any other: give it to `on_failure_callback` of a DAG or a task, or call it
    in a task with its context, as `reconcile_inventory` does, so that a delivery that fails is seen
    and tried again. `notifiers` is what the variable would say."""

    def __init__(self, notifiers: Sequence[Mapping[str, Any]] | None = None) -> None:
        super().__init__()
        self._notifiers = notifiers

    def notify(self, context: Context) -> None:
        """Tell by every notifier, then raise NotTold if one of them failed."""
        from lastgood.catalog.connect import open_catalog
        from lastgood.flows.reconciliation import overdue

        run = str(context["run_id"])
        failed: list[str] = []
        with open_catalog() as catalog:
            for alert in overdue.alerts(catalog, run=run, notifier=LOG):
                self.log.warning("for %s: %s\n%s", alert.owner, alert.subject, alert.text)
                overdue.record(catalog, alert, run=run, notifier=LOG)
            for position, plugged in enumerate(self._plugged()):
                name = str(plugged.get("name", plugged["notifier"]))
                for alert in overdue.alerts(catalog, run=run, notifier=name):
                    try:
                        made = _made(plugged, f"{VARIABLE}[{position}]")
                        made({**context, "overdue": alert.to_context()})
                    except Exception as error:  # each library has its own; the others are told
                        failed.append(f"{alert.owner} by {name}: {error}")
                    else:
                        overdue.record(catalog, alert, run=run, notifier=name)
        if failed:
            raise NotTold(failed="; ".join(failed))

    def _plugged(self) -> Sequence[Mapping[str, Any]]:
        if self._notifiers is not None:
            return self._notifiers
        from airflow.sdk import Variable

        found = Variable.get(VARIABLE, default=[], deserialize_json=True)
        if not isinstance(found, list) or not all(
            isinstance(one, dict) and isinstance(one.get("notifier"), str) for one in found
        ):
            shape = 'give a list of {"notifier": CLASS, "arguments": {...}}'
            raise InvalidInput(where=f"the Airflow variable {VARIABLE}", reason=shape)
        return found


def _made(plugged: Mapping[str, Any], where: str) -> BaseNotifier:
    """A notifier of its own for each alert: rendering changes it in place."""
    name = str(plugged["notifier"])
    kind = resolve_name(name)
    if not (isinstance(kind, type) and issubclass(kind, BaseNotifier)):
        raise InvalidInput(where=where, reason=f"{name} is no notifier of Airflow")
    return kind(**plugged.get("arguments", {}))
