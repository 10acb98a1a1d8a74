"""What can go wrong while the embedded stack starts, runs or stops."""

from pathlib import Path


class StackError(RuntimeError):
    """The embedded stack cannot do what was asked; the message names the part and the way out."""


class PostgresFailed(StackError):
    """A PostgreSQL binary failed; carries the last lines of its log."""

    def __init__(self, what: str, log: str) -> None:
        super().__init__(f"{what}\n{log}" if log else what)
        self.log = log


class DataDirInUse(StackError):
    """Another living process runs the server of this data directory."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(
            f"{data_dir} is in use by another process that runs its server; "
            "stop that one first (`make stop`), or choose another directory by LASTGOOD_VAR"
        )
        self.data_dir = data_dir
