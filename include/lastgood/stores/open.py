"""From a store's configuration to the store itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lastgood.errors import NotFound
from lastgood.rules.store_profile import FoundProfile
from lastgood.stores.asked_once import AskedOnce
from lastgood.stores.base import Store, StoreError
from lastgood.stores.folder_questions import answered_in
from lastgood.stores.hurry import hurried


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """What an operator says about a store: see `include/config/stores`."""

    name: str
    kind: str  # "file" | "s3" | "postgres"
    root: str  # a folder (relative to $LASTGOOD_VAR unless absolute), a bucket, or a schema
    prefix: str = ""  # s3: what all keys begin with
    # An Airflow connection. None: s3 takes boto3's own credentials, postgres the catalog's database
    connection: str | None = None
    direct: bool = False  # file: jobs write into the attempt's own folder
    encryption: str | None = None  # s3: SSE-S3 or SSE-KMS is asked for; other words are for people
    kms_key: str | None = None  # s3: the key of SSE-KMS
    found: FoundProfile | None = None  # what the newest probe of this place found

    @classmethod
    def from_row(
        cls, name: str, kind: str, config: Mapping[str, Any], found: FoundProfile | None = None
    ) -> StoreConfig:
        """From a row of the catalog's `stores` and the profile that is kept of it: other keys of
        `config` (failure domain, tier) are for other readers."""
        return cls(
            name=name,
            kind=kind,
            root=str(config["root"]),
            prefix=str(config.get("prefix") or ""),
            connection=config.get("connection"),
            direct=bool(config.get("direct", False)),
            encryption=config.get("encryption") if kind == "s3" else None,
            kms_key=config.get("kms_key"),
            found=found,
        )


def open_store(config: StoreConfig) -> Store:
    """Open a store. StoreError if it cannot be reached or is not there."""
    if config.kind == "file":
        from lastgood.stores.file import FileStore

        root = folder_of(config.root)
        return answered_in(
            root, config.name, lambda: FileStore(config.name, root, direct=config.direct)
        )
    if config.kind == "s3":
        from lastgood.stores.s3 import open_s3
        from lastgood.stores.s3_encryption import encryption_of

        return open_s3(
            config.name,
            config.root,
            config.prefix,
            config.connection,
            found=config.found,
            encryption=encryption_of(config.encryption, config.kms_key),
        )
    if config.kind == "postgres":
        from lastgood.stores.postgres import PostgresStore

        return PostgresStore(config.name, _conninfo(config), config.root)
    raise StoreError(store=config.name, key="", reason=f"no store of kind {config.kind!r} is known")


def _conninfo(config: StoreConfig) -> str:
    from lastgood.connections import NoConnection, catalog_conninfo, conninfo_of

    try:
        return conninfo_of(config.connection) if config.connection else catalog_conninfo()
    except NoConnection as absent:
        raise StoreError(store=config.name, key="", reason=str(absent)) from absent


def folder_of(root: str) -> Path:
    """A store's folder: a relative one lies below $LASTGOOD_VAR, or `var/` beside `include/`."""
    beside = Path(__file__).resolve().parents[3] / "var"
    return Path(os.environ.get("LASTGOOD_VAR") or beside) / root


class Stores:
    """Stores by name, each opened at its first use and kept; for use by many threads."""

    def __init__(self, config_of: Callable[[str], StoreConfig | None]) -> None:
        """`config_of` looks a store up, for example in the catalog; None if there is none."""
        self._config_of = config_of
        self._opened: dict[str, tuple[StoreConfig, Store]] = {}
        # By store: one that does not answer holds up nobody else's, and its own only once.
        self._opening: AskedOnce[str, Store] = AskedOnce()

    def __getitem__(self, name: str) -> Store:
        """The store; opened anew if its configuration changed, or its place. NotFound if there is
        none, StoreError within seconds if it does not answer."""
        return self._as_wanted(name) or self._opening.ask(name, lambda: self._open(name))

    def _open(self, name: str) -> Store:
        known = self._as_wanted(name)  # by whoever asked a moment before
        if known is not None:
            return known
        config = self._config(name)
        with hurried():
            opened = open_store(config)
        self._opened[name] = (config, opened)
        return opened

    def _as_wanted(self, name: str) -> Store | None:
        """The store as it was opened, if it still is what is configured."""
        config = self._config(name)
        known = self._opened.get(name)
        if known is None or known[0] != config or getattr(known[1], "outdated", False):
            return None
        return known[1]

    def _config(self, name: str) -> StoreConfig:
        config = self._config_of(name)
        if config is None:
            raise NotFound(what="store", name=name)
        return config

    def opened(self) -> Iterator[Store]:
        """The stores opened so far."""
        yield from [store for _, store in list(self._opened.values())]
