"""A stack whose demo project keeps its checkpoints in S3 (`STORE=s3`).

The store is whatever the Airflow connection `lastgood_s3` names, given as AIRFLOW_CONN_LASTGOOD_S3.
Without one, a Ceph node of Debian's packages is started for as long as the stack runs. It keeps
everything in memory: with it ends all that it held, and so the stack begins anew.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from lastgood.stack import ceph
from lastgood.stack.errors import StackError
from lastgood.stack.layout import StackLayout
from lastgood.stack.postgres import remove
from lastgood.stack.secrets import write_private

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CONNECTION = "lastgood_s3"
VARIABLE = "AIRFLOW_CONN_LASTGOOD_S3"
BUCKET_VARIABLE = "LASTGOOD_S3_BUCKET"
_BUCKET = "lastgood-demo"
_STORE = """\
# Checkpoints of the demo: a bucket, written by presigned URLs straight from the ranks.
name: s3
kind: s3
bucket: {bucket}
connection: {connection}
failure_domain: this-endpoint
tier: fast
encryption: none
"""


@dataclass(frozen=True)
class ObjectStore:
    """The S3 of one stack. `connection` is the Airflow connection's text, a URI or JSON."""

    bucket: str
    connection: str

    @classmethod
    def of(cls, layout: StackLayout) -> Self | None:
        """That of the stack that was last started; None if its store is a folder."""
        try:
            return cls(**json.loads(_file(layout).read_text()))
        except FileNotFoundError:
            return None

    @property
    def environment(self) -> Mapping[str, str]:
        """What makes Airflow, the coordinator and the command line find it."""
        return {VARIABLE: self.connection}

    def client(self) -> S3Client:
        """A client of its own, with the connection's settings and nothing of the library's."""
        import boto3
        from airflow.models.connection import Connection
        from airflow.providers.amazon.aws.utils.connection_wrapper import AwsConnectionWrapper

        conn = Connection(conn_id=CONNECTION, **_parsed(self.connection))
        told = AwsConnectionWrapper(conn=conn)
        return boto3.client(
            "s3",
            endpoint_url=told.endpoint_url,
            region_name=told.region_name,
            aws_access_key_id=told.aws_access_key_id,
            aws_secret_access_key=told.aws_secret_access_key,
            aws_session_token=told.aws_session_token,
        )


def start(layout: StackLayout) -> None:
    """Have the S3 that this stack was asked for, or none. StackError where there is none."""
    if not layout.on_s3:
        _file(layout).unlink(missing_ok=True)
        return
    given = os.environ.get(VARIABLE)
    connection = given or _start_ceph(layout)
    found = ObjectStore(os.environ.get(BUCKET_VARIABLE) or _BUCKET, connection)
    write_private(_file(layout), json.dumps(asdict(found)))
    if given is None:
        found.client().create_bucket(Bucket=found.bucket)


def stop(layout: StackLayout) -> None:
    """Stop the Ceph node of this stack, if it has one."""
    if _ceph_folder(layout).exists():
        ceph.stop(_ceph_folder(layout))


def configuration(layout: StackLayout) -> Path:
    """The folder of configuration that is applied: the checkout's, and on S3 one made from it."""
    ours = layout.checkout / "include/config"
    store = ObjectStore.of(layout)
    if store is None:
        return ours
    made = layout.var / "config"
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(ours, made)
    for file in (made / "stores").iterdir():
        file.unlink()
    text = _STORE.format(bucket=store.bucket, connection=CONNECTION)
    (made / "stores/s3.yaml").write_text(text)
    for file in (made / "projects").iterdir():
        file.write_text(file.read_text().replace("store: local\n", "store: s3\n"))
    return made


def _start_ceph(layout: StackLayout) -> str:
    missing = ceph.missing_programs()
    if missing:
        raise StackError(
            f"STORE=s3 needs Ceph ({', '.join(missing)} not found; install radosgw ceph-mon"
            f" ceph-osd), or an endpoint: an Airflow connection in {VARIABLE}, with its bucket in"
            f" {BUCKET_VARIABLE}"
        )
    stop(layout)
    remove(layout.postgres)  # what the catalog and Airflow know of is gone
    try:
        node = ceph.Ceph.start(_ceph_folder(layout))
    except ceph.CephFailed as error:
        raise StackError(str(error)) from error
    return json.dumps(
        {
            "conn_type": "aws",
            "login": node.access_key,
            "password": node.secret_key,
            "extra": {"endpoint_url": node.endpoint, "region_name": "us-east-1"},
        }
    )


def _parsed(connection: str) -> dict[str, Any]:
    if not connection.lstrip().startswith("{"):
        return {"uri": connection}
    found: dict[str, Any] = json.loads(connection)
    extra = found.get("extra")
    return found | {"extra": extra if isinstance(extra, str | None) else json.dumps(extra)}


def _file(layout: StackLayout) -> Path:
    return layout.var / "s3.json"


def _ceph_folder(layout: StackLayout) -> Path:
    return layout.var / "ceph"
