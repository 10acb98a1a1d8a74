"""The S3 server of the tests is a real one: it checks signatures and accounts bytes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError

from lastgood.stack.ceph import Ceph, stop
from tests.ceph.fixtures import client_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def test_a_wrong_secret_is_refused(ceph: Ceph, ceph_bucket: str) -> None:
    stranger = client_of(ceph, secret_key="not the secret")
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        stranger.list_objects_v2(Bucket=ceph_bucket)
    stranger.close()


def test_it_accounts_objects_and_pending_parts(
    ceph: Ceph, ceph_client: S3Client, ceph_bucket: str
) -> None:
    ceph_client.put_object(Bucket=ceph_bucket, Key="whole", Body=b"x" * 1000)
    upload = ceph_client.create_multipart_upload(Bucket=ceph_bucket, Key="begun")["UploadId"]
    where = {"Bucket": ceph_bucket, "Key": "begun", "UploadId": upload}
    ceph_client.upload_part(**where, PartNumber=1, Body=b"y" * 234)
    assert ceph.bucket_bytes(ceph_bucket) == 1234
    ceph_client.abort_multipart_upload(**where)
    assert ceph.bucket_bytes(ceph_bucket) == 1000


def test_a_gateway_that_has_not_told_its_id_yet_is_stopped(tmp_path: Path) -> None:
    gateway, cluster = tmp_path / "radosgw", tmp_path / "cluster"
    gateway.symlink_to(shutil.which("bash") or "/bin/bash")
    cluster.mkdir()
    starting = subprocess.Popen(
        [gateway, "-c", "read never", "--conf", cluster / "ceph.conf"], stdin=subprocess.PIPE
    )
    stop(cluster)
    assert starting.wait(timeout=60) == -9
    assert not cluster.exists()
    assert starting.stdin is not None
    starting.stdin.close()
