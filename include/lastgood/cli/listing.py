"""What a group of commands does when none of them is named: it lists."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class ListByDefault(TyperGroup):
    """`lastgood reports -p vision` is `lastgood reports list -p vision`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, "-h", "--help"):
            args = ["list", *args]
        return super().parse_args(ctx, args)
