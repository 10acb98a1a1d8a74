"""Stores in new buckets of the real S3 servers, as a probe finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lastgood.rules.store_profile import FoundProfile
from lastgood.stores.profile import probe
from lastgood.stores.s3 import S3Store
from tests.ceph.fixtures import MakeBucket

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CEPH = "ceph", "ceph-versioned"
LOCALSTACK = tuple(
    pytest.param(kind, marks=pytest.mark.slow) for kind in ("localstack", "localstack-versioned")
)


_found: dict[str, FoundProfile] = {}


def new_store(request: pytest.FixtureRequest, name: str, kind: str, prefix: str) -> S3Store:
    """A store in a new bucket of the kind: the server's name, and what the bucket keeps (nothing,
    `versioned` or `lock`). On LocalStack it is what a probe finds: one that attests digests."""
    server, _, keeps = kind.partition("-")
    client: S3Client = request.getfixturevalue(f"{server}_client")
    make_bucket: MakeBucket = request.getfixturevalue(f"make_{server}_bucket")
    bucket = make_bucket(versioned=keeps == "versioned", object_lock=keeps == "lock")
    if server == "localstack" and kind not in _found:
        _found[kind] = probe(S3Store(name, client, bucket, "probed"))
    return S3Store(name, client, bucket, prefix, found=_found.get(kind))
