"""How much a policy can keep: the numbers that people plan a store with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lastgood.rules.policy import Policy
from lastgood.rules.quantities import counted, rough_size


@dataclass(frozen=True, slots=True)
class Plan:
    """The most a stage keeps under a policy, by its roles alone.

    `by_role` has the most checkpoints of each role; `unbounded` are the roles whose number only the
    history sets, which count nowhere here. As separate copies each role has its own; as labels one
    copy may carry several, so that `checkpoints` is only reached where no two roles meet.
    `overrides` has the same for a stage under each override with roles of its own, by its words.
    """

    checkpoint_bytes: int
    by_role: Mapping[str, int]
    unbounded: tuple[str, ...]
    overrides: Mapping[str, Plan] = field(default_factory=dict)

    @property
    def checkpoints(self) -> int:
        return sum(self.by_role.values())

    @property
    def separate_bytes(self) -> int:
        """The bytes if each role keeps a copy of its own."""
        return self.checkpoints * self.checkpoint_bytes

    def __str__(self) -> str:
        return "\n".join([*self._lines(), *self._override_lines()])

    def _lines(self) -> Iterator[str]:
        if self.by_role:
            roles = " + ".join(f"{name} {count}" for name, count in self.by_role.items())
            yield (
                f"{roles} separate copies of {rough_size(self.checkpoint_bytes)} are"
                f" {rough_size(self.separate_bytes)} at most."
            )
            most = counted(self.checkpoints, "checkpoint")
            yield f"As labels on one copy: the union, at most {most}."
        if self.unbounded:
            yield f"Not counted, because only history bounds them: {', '.join(self.unbounded)}."

    def _override_lines(self) -> Iterator[str]:
        for words, space in self.overrides.items():
            yield f"Each stage of {words}:"
            yield from (f"  {line}" for line in space._lines())


def plan(policy: Policy, checkpoint_bytes: int) -> Plan:
    """The most that one stage keeps if each checkpoint has this many bytes.

    Beyond the roles a stage keeps what is held, read, depended on and resumed from.
    """
    most = {role.name: role.rule.most() for role in policy.roles}
    return Plan(
        checkpoint_bytes,
        {name: count for name, count in most.items() if count is not None},
        tuple(name for name, count in most.items() if count is None),
        {
            str(override): plan(rules, checkpoint_bytes)
            for override, rules in zip(policy.overrides, policy.overridden, strict=True)
            if override.roles is not None
        },
    )
