"""Generated secrets in one JSON file that only we read."""

from __future__ import annotations

import json
import secrets
from pathlib import Path


class SecretFile:
    """Named secrets; each is generated once and then stays."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, name: str) -> str:
        """Return a secret that exists. Raises KeyError when it was never made."""
        return self.all()[name]

    def ensure(self, name: str) -> str:
        """Return the secret, generating 192 random bits in hexadecimal the first time."""
        known = self.all()
        if name not in known:
            known[name] = secrets.token_hex(24)
            write_private(self._path, json.dumps(known, indent=1))
        return known[name]

    def all(self) -> dict[str, str]:
        """Return every secret by name."""
        try:
            known: dict[str, str] = json.loads(self._path.read_text())
        except FileNotFoundError:
            return {}
        return known


def write_private(path: Path, text: str) -> None:
    """Replace a file at once, readable by us alone from its first byte on."""
    staging = path.with_name(f"{path.name}.new")
    staging.unlink(missing_ok=True)
    staging.touch(mode=0o600)
    staging.write_text(text)
    staging.replace(path)
