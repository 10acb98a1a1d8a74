"""The ladder: what examines a copy at each level, and which version of it there is now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import metadata

from lastgood.catalog.jobs.copies import Copy, CopyObject
from lastgood.catalog.validation.validations import PresentCopy
from lastgood.errors import InvalidInput
from lastgood.flows.settings.contracts import registered
from lastgood.flows.validation import checksum, format_level, pod_level, restore_level
from lastgood.flows.validation.findings import Finding
from lastgood.flows.validation.pod_level import Pods
from lastgood.flows.validation.reading import Lent
from lastgood.rules import canonical
from lastgood.rules.cadence import CopySeen
from lastgood.rules.contract import Contract
from lastgood.rules.manifest import Manifest
from lastgood.rules.policy_sections import ValidationPolicy
from lastgood.rules.retention_rules import Level
from lastgood.stores.base import Store


@dataclass(frozen=True, slots=True)
class Subject:
    """One copy with what the catalog says of it."""

    copy: Copy
    manifest: bytes
    objects: Sequence[CopyObject]
    lent: Lent


@dataclass(frozen=True, slots=True)
class Examined:
    """A finding, and who found it."""

    finding: Finding
    validator: str
    version: str


@dataclass(frozen=True)
class Ladder:
    """The validators of this process. Contracts are read once. `pods` runs those that ask for a
    pod; without it they prove nothing."""

    contracts: Mapping[str, Contract] = field(default_factory=registered)
    pods: Pods | None = None

    @cached_property
    def versions(self) -> Mapping[Level, str]:
        """Those that are the same for every copy. A receipt of another one is taken again."""
        from lastgood.validators.formatting import version  # loads every format that is installed

        return {Level.CHECKSUM: metadata.version("lastgood"), Level.FORMAT: version()}

    def seen(self, copy: PresentCopy) -> CopySeen:
        """The copy as the cadence looks at it: with its contract as its own validator."""
        contract = self.contracts.get(copy.contract or "")
        own = {} if contract is None else {Level.RESTORE: _version(contract)}
        return replace(copy.seen, validators=own)

    def reaches(self, level: Level, contract: str | None) -> bool:
        """Whether a copy whose manifest names this contract can be examined at a level."""
        return level is not Level.RESTORE or contract in self.contracts

    def examine(
        self, level: Level, store: Store, subject: Subject, policy: ValidationPolicy
    ) -> Examined:
        """Examine a copy at a level. Never raises for what is wrong with it or its store."""
        if level is Level.CHECKSUM:
            found = checksum.check(store, subject.copy, subject.manifest, subject.objects)
            return Examined(found, checksum.VALIDATOR, self.versions[level])
        manifest = canonical.parse_canonical(subject.manifest)
        if level is Level.FORMAT:
            found = format_level.check(store, subject.copy, manifest, subject.objects, policy)
            return Examined(found, format_level.VALIDATOR, self.versions[level])
        contract = self._contract(manifest)
        if contract.pod is None:
            found = restore_level.check(store, subject.copy, manifest, subject.objects, contract)
        else:
            found = pod_level.check(
                store,
                subject.copy,
                manifest,
                subject.manifest,
                subject.objects,
                contract,
                subject.lent,
                self.pods,
            )
        return Examined(found, restore_level.VALIDATOR, _version(contract))

    def not_yet(self, level: Level, because: str) -> Examined:
        """What is said of a copy that cannot be examined just now."""
        validators = {
            Level.CHECKSUM: checksum.VALIDATOR,
            Level.FORMAT: format_level.VALIDATOR,
            Level.RESTORE: restore_level.VALIDATOR,
        }
        version = self.versions.get(level, "none")
        return Examined(Finding("inconclusive", because), validators[level], version)

    def _contract(self, manifest: Manifest) -> Contract:
        named = None if manifest.restore is None else manifest.restore.contract
        if named is None:
            raise InvalidInput(where="level", reason="the manifest names no contract to restore by")
        if named not in self.contracts:
            known = ", ".join(sorted(self.contracts)) or "none"
            reason = f"contract {named!r} is not registered here; registered are: {known}"
            raise InvalidInput(where="level", reason=reason)
        return self.contracts[named]


def _version(contract: Contract) -> str:
    return f"{contract.name}@{contract.identity}"
