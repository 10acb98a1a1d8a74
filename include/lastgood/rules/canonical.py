"""The one byte form of a document (RFC 8785), and the digest that is its identity."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import rfc8785

from lastgood.errors import BadManifest
from lastgood.rules.manifest import Manifest
from lastgood.rules.names import ManifestDigest
from lastgood.rules.paths import EXACT_INTEGER_LIMIT

MANIFEST_BYTES_LIMIT = 64 << 20


def canonical_json(document: Any) -> bytes:
    """The RFC 8785 bytes of a JSON value. Raises ValueError for what JSON cannot carry exactly."""
    return rfc8785.dumps(document)


def canonical_bytes(manifest: Manifest) -> bytes:
    """The bytes that are stored and hashed. Raises BadManifest beyond MANIFEST_BYTES_LIMIT."""
    content = canonical_json(manifest.to_json())
    _check_length(content)
    return content


def digest(content: bytes) -> ManifestDigest:
    """The identity of a manifest: the SHA-256 of its canonical bytes, in lower-case hex."""
    return ManifestDigest(hashlib.sha256(content).hexdigest())


def parse_canonical(content: bytes) -> Manifest:
    """The manifest with exactly these bytes.

    Raises BadManifest if they are not JSON, not in canonical form or not a manifest (and what
    `Manifest.parse` raises).
    """
    _check_length(content)
    try:
        document = json.loads(content.decode(), parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise BadManifest(where="$", reason=f"not JSON: {error}") from None
    manifest = Manifest.parse(document)
    if canonical_json(manifest.to_json()) != content:
        raise BadManifest(where="$", reason="the bytes are not in canonical form (RFC 8785)")
    return manifest


def _integer(text: str) -> int | float:
    """RFC 8785 writes 1e20 as a whole number with all its digits; it stays the float that it is."""
    value = int(text)
    return value if abs(value) <= EXACT_INTEGER_LIMIT else float(text)


def _check_length(content: bytes) -> None:
    if len(content) > MANIFEST_BYTES_LIMIT:
        raise BadManifest(where="$", reason=f"{len(content)} bytes; at most {MANIFEST_BYTES_LIMIT}")
