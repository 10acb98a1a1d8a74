"""What a probe finds out by doing, and what a store then does by it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import httpx
import pytest
from botocore.exceptions import ClientError

from lastgood.rules.digests import composite_of
from lastgood.rules.store_profile import (
    Ability,
    Answer,
    Finding,
    FoundProfile,
    attests,
    choices,
    refusals,
)
from lastgood.stack.ceph import Ceph
from lastgood.stack.ceph_settings import KMS_KEY
from lastgood.stores import parts, profile
from lastgood.stores.base import EVERYTHING, Key, PartInvalid, Prefix, StoreError
from lastgood.stores.file import FileStore
from lastgood.stores.hashing import ExpectedObject, Proof, Verdict, verify_objects
from lastgood.stores.profile import probe
from lastgood.stores.profile_features import PROBE_RULE, Features
from lastgood.stores.s3 import S3Store
from lastgood.stores.s3_client import CONFIG, prepared
from lastgood.stores.s3_encryption import Encryption
from tests.ceph.attesting import AttestingServer
from tests.ceph.fixtures import MakeBucket, client_of
from tests.factories import send_parts
from tests.stores.profile_table import answers, documented, nothing_is_left

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MiB = 1 << 20
Y, N, U = Answer.YES, Answer.NO, Answer.UNKNOWN
KEY = Key("checkpoints/model.bin")
AWS_KEY = "arn:aws:kms:us-east-1:000000000000:key/11111111-2222-3333-4444-555555555555"
DATA = bytes(range(256)) * 4096 * 6  # 6 MiB: two parts


@pytest.fixture
def moto_client(moto_s3: str) -> Iterator[S3Client]:
    client = prepared(
        boto3.client(
            "s3",
            endpoint_url=moto_s3,
            region_name="us-east-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
            config=CONFIG,
        )
    )
    yield client
    client.close()


@pytest.fixture(scope="module")
def attested(
    attesting: AttestingServer, ceph: Ceph, make_ceph_bucket: MakeBucket
) -> Iterator[Callable[..., S3Store]]:
    """A function that opens a store behind the server that checks digests, as a probe finds it."""
    client = client_of(ceph, endpoint=attesting.endpoint)
    found: dict[bool, FoundProfile] = {}

    def make(*, versioned: bool = False) -> S3Store:
        bucket = make_ceph_bucket(versioned=versioned)
        if versioned not in found:
            found[versioned] = probe(S3Store("cloud", client, bucket, "jobs"))
        return S3Store("cloud", client, bucket, "jobs", found=found[versioned])

    yield make
    client.close()


class TestTheTableIsWhatProbesFind:
    """docs/stores.md says what the probe finds, store by store."""

    def test_file(self, tmp_path: Path) -> None:
        store = FileStore("local", tmp_path)
        found = probe(store)
        assert answers(found) == documented()["file"]
        assert found.finding(Ability.CONDITIONAL_COMPLETE).evidence.endswith("was refused")
        assert nothing_is_left(store)

    @pytest.mark.parametrize(
        ("name", "bucket"),
        [
            ("Ceph RGW 16.2", {}),
            ("with versions", {"versioned": True}),
            ("with Object Lock", {"object_lock": True}),
        ],
    )
    def test_ceph(
        self,
        ceph: Ceph,
        ceph_client: S3Client,
        make_ceph_bucket: MakeBucket,
        name: str,
        bucket: dict[str, bool],
    ) -> None:
        encryption = Encryption("SSE-KMS", KMS_KEY)
        place = make_ceph_bucket(**bucket)
        store = S3Store("cloud", ceph_client, place, "a b/c+d", encryption=encryption)
        assert answers(probe(store)) == documented()[name]
        assert nothing_is_left(store)
        assert ceph.bucket_bytes(place) == 0

    @pytest.mark.slow
    def test_localstack(
        self, localstack_client: S3Client, make_localstack_bucket: MakeBucket
    ) -> None:
        encryption = Encryption("SSE-KMS", AWS_KEY)
        place = make_localstack_bucket(object_lock=True)
        store = S3Store("cloud", localstack_client, place, "a b/c+d", encryption=encryption)
        assert answers(probe(store)) == documented()["LocalStack 4.13 with Object Lock"]
        assert nothing_is_left(store)

    def test_moto(self, moto_client: S3Client) -> None:
        moto_client.create_bucket(Bucket="probed")
        # A probe that was killed left its rule.
        left: Any = {"ID": PROBE_RULE, "Status": "Enabled", "Filter": {"Prefix": "probe/"}}
        left["AbortIncompleteMultipartUpload"] = {"DaysAfterInitiation": 7}
        moto_client.put_bucket_lifecycle_configuration(
            Bucket="probed", LifecycleConfiguration={"Rules": [left]}
        )
        assert answers(probe(S3Store("cloud", moto_client, "probed"))) == documented()["moto"]
        with pytest.raises(ClientError, match="NoSuchLifecycleConfiguration"):
            moto_client.get_bucket_lifecycle_configuration(Bucket="probed")

    def test_a_server_that_checks_digests(self, attested: Callable[..., S3Store]) -> None:
        store = attested()
        found = answers(probe(store))
        assert found == documented()["Ceph behind a checker of digests"]
        assert nothing_is_left(store)


def test_a_failed_probe_cleans_up(
    ceph_client: S3Client, ceph_versioned_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StoreError(store="cloud", key="", reason="pulled the plug")

    store = S3Store("cloud", ceph_client, ceph_versioned_bucket)
    monkeypatch.setattr(profile, "hides", fail)
    with pytest.raises(StoreError, match="pulled the plug"):
        probe(store)
    assert nothing_is_left(store)


def test_a_bucket_that_retains_whatever_is_written_is_probed_all_the_same(
    ceph_client: S3Client, ceph_locked_bucket: str
) -> None:
    retained: Any = {"Mode": "COMPLIANCE", "Days": 1}
    ceph_client.put_object_lock_configuration(
        Bucket=ceph_locked_bucket,
        ObjectLockConfiguration={
            "ObjectLockEnabled": "Enabled",
            "Rule": {"DefaultRetention": retained},
        },
    )
    store = S3Store("cloud", ceph_client, ceph_locked_bucket)
    assert probe(store).has(Ability.OBJECT_LOCK)
    left = list(store.list(EVERYTHING, versions=True))
    assert {one.key.partition("/")[0] for one in left} == {"probe"}
    assert {(one.key, one.version_id) for one in left if not one.is_delete_marker} == set(
        store.locked(left)
    )


def test_what_a_killed_probe_left_goes_with_the_next_but_not_a_running_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore("local", tmp_path)
    store.put_new(Key("probe/earlier/once"), b"x")
    probe(store)
    assert [one.key for one in store.list(EVERYTHING)] == ["probe/earlier/once"]
    monkeypatch.setattr(profile, "LEFT_BEHIND_AFTER", timedelta(microseconds=1))
    probe(store)
    assert nothing_is_left(store)


def test_a_store_is_refused_for_what_it_lacks_and_for_nothing_else(moto_client: S3Client) -> None:
    moto_client.create_bucket(Bucket="refused")
    found = probe(S3Store("cloud", moto_client, "refused"))
    assert set(refusals(found)) == {"unsigned-requests"}
    assert refusals(found, frozenset({"unsigned-requests"})) == {}
    nothing = FoundProfile("s3", {})
    assert set(refusals(nothing)) == {"replaced-keys"}
    assert not attests(nothing)
    assert choices(nothing)["verification"] == "by reading every byte"


def test_rules_that_somebody_writes_during_a_probe_stay(moto_client: S3Client) -> None:
    moto_client.create_bucket(Bucket="ruled")
    rule: Any = {"ID": "theirs", "Status": "Enabled", "Filter": {"Prefix": "logs/"}}
    theirs: Any = {"Rules": [rule | {"Expiration": {"Days": 9}}]}
    events, written = moto_client.meta.events, "after-call.s3.PutBucketLifecycleConfiguration"

    def meanwhile(**_: Any) -> None:
        events.unregister(written, meanwhile)
        moto_client.put_bucket_lifecycle_configuration(
            Bucket="ruled", LifecycleConfiguration=theirs
        )

    events.register(written, meanwhile)
    asking = Features(S3Store("cloud", moto_client, "ruled"), Prefix("probe/1/"))
    assert asking.lifecycle().answer is Answer.YES
    kept = moto_client.get_bucket_lifecycle_configuration(Bucket="ruled")["Rules"]
    assert [one["ID"] for one in kept] == ["theirs"]


def test_locks_that_may_not_be_seen_are_not_told_as_none() -> None:
    unseen = {
        Ability.VERSIONS: Finding(Answer.YES, "seen"),
        Ability.OBJECT_LOCK: Finding(Answer.UNKNOWN, "AccessDenied"),
    }
    assert "what is not told is locked" in choices(FoundProfile("s3", unseen))["locks"]
    unseen[Ability.OBJECT_LOCK] = Finding(Answer.NO, "the bucket has none")
    assert choices(FoundProfile("s3", unseen))["locks"] == "none: every deletion is tried"


def test_a_profile_of_other_versioning_counts_no_more(
    ceph_client: S3Client, ceph_bucket: str
) -> None:
    found = probe(S3Store("cloud", ceph_client, ceph_bucket))
    assert found.has(Ability.CONDITIONAL_PUT)
    ceph_client.put_bucket_versioning(
        Bucket=ceph_bucket, VersioningConfiguration={"Status": "Enabled"}
    )
    store = S3Store("cloud", ceph_client, ceph_bucket, found=found)
    assert store.put_new(KEY, b"first").version_id is not None
    # The server itself takes a second version; the first one counts all the same.
    ceph_client.put_object(Bucket=ceph_bucket, Key=KEY, Body=b"second", IfNoneMatch="*")
    assert store.read(KEY) == b"first"


class TestAttested:
    """Where the store proves the SHA-256 of each part, nothing is read at commit but a byte."""

    @pytest.fixture(autouse=True)
    def _small_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(parts, "PART_BYTES", 5 * MiB)

    def send(self, store: S3Store, data: bytes = DATA) -> tuple[str, ...]:
        """An object by presigned parts; the digests of its parts."""
        upload = store.create_upload(KEY, len(data))
        pieces = [data[at : at + 5 * MiB] for at in range(0, len(data), 5 * MiB)]
        digests = [hashlib.sha256(piece).hexdigest() for piece in pieces]
        for number, (piece, digest) in enumerate(zip(pieces, digests, strict=True), 1):
            signed = store.presign_part(KEY, upload, number, 60, sha256=digest)
            assert "x-amz-checksum-sha256" in signed.url.partition("SignedHeaders=")[2]
            sent = httpx.put(signed.url, headers=dict(signed.headers), content=piece, timeout=60)
            assert sent.status_code == 200, sent.text
        held = store.parts(KEY, upload)
        assert [part.sha256 for part in held] == digests
        store.complete_upload(KEY, upload, held)
        return tuple(digests)

    @pytest.mark.parametrize("versioned", [False, True])
    def test_nothing_is_read_but_one_byte(
        self, attested: Callable[..., S3Store], attesting: AttestingServer, versioned: bool
    ) -> None:
        store = attested(versioned=versioned)
        digests = self.send(store)
        expected = expecting(DATA, digests)
        attesting.requests.clear()
        attesting.read_bytes = 0
        (verified,) = verify_objects(store, [expected])
        assert (verified.verdict, verified.proof) == (Verdict.OK, Proof.ATTESTED_PARTS)
        assert (verified.bytes_read, attesting.read_bytes) == (0, 1)
        assert attesting.requests == ["HEAD", f"GET bytes={len(DATA) - 1}-{len(DATA) - 1}"]
        assert (verified.version_id is not None) == versioned
        (read,) = verify_objects(store, [expected], reread=True)
        assert (read.verdict, read.proof, read.bytes_read) == (Verdict.OK, Proof.READ, len(DATA))

    def test_other_digests_of_parts_are_told(self, attested: Callable[..., S3Store]) -> None:
        store = attested()
        first, _ = self.send(store)
        (verified,) = verify_objects(store, [expecting(DATA, (first, "0" * 64))])
        assert (verified.verdict, verified.proof) == (
            Verdict.DIGEST_MISMATCH,
            Proof.ATTESTED_PARTS,
        )

    def test_parts_that_are_cut_otherwise_are_not_compared(
        self, attested: Callable[..., S3Store]
    ) -> None:
        store = attested()
        self.send(store)
        whole = hashlib.sha256(DATA).hexdigest()
        (verified,) = verify_objects(store, [expecting(DATA, (whole,))])
        assert (verified.verdict, verified.proof) == (Verdict.OK, Proof.READ)

    def test_an_object_of_one_part_has_the_parts_digest(
        self, attested: Callable[..., S3Store]
    ) -> None:
        store = attested()
        self.send(store, b"small")
        (verified,) = verify_objects(store, [expecting(b"small", ())])
        assert (verified.verdict, verified.proof, verified.bytes_read) == (
            Verdict.OK,
            Proof.ATTESTED_PARTS,
            0,
        )

    def test_a_url_takes_the_bytes_that_it_was_made_for_and_no_others(
        self, attested: Callable[..., S3Store]
    ) -> None:
        store = attested()
        upload = store.create_upload(KEY, 5)
        signed = store.presign_part(KEY, upload, 1, 60, sha256=hashlib.sha256(b"right").hexdigest())
        wrong = httpx.put(signed.url, headers=dict(signed.headers), content=b"wrong", timeout=60)
        assert (wrong.status_code, "BadDigest" in wrong.text) == (400, True)
        assert httpx.put(signed.url, content=b"wrong", timeout=60).is_error
        assert store.parts(KEY, upload) == []
        with pytest.raises(PartInvalid, match="SHA-256"):
            store.presign_part(KEY, upload, 1, 60)

    def test_a_small_object_has_a_digest_of_its_own(self, attested: Callable[..., S3Store]) -> None:
        store = attested()
        store.put_new(KEY, b"manifest")
        found = store.stat(KEY)
        assert found is not None
        assert (found.sha256, found.composite) == (hashlib.sha256(b"manifest").hexdigest(), None)

    def test_parts_that_the_coordinator_relays_are_proven_too(
        self, attested: Callable[..., S3Store]
    ) -> None:
        store = attested()
        upload = store.create_upload(KEY, len(DATA))
        sent = send_parts(store, KEY, upload, DATA)
        store.complete_upload(KEY, upload, sent)
        found = store.stat(KEY)
        assert found is not None
        assert found.composite == composite_of([part.sha256 or "" for part in sent])


def expecting(data: bytes, digests: tuple[str, ...]) -> ExpectedObject:
    whole = hashlib.sha256(data).hexdigest()
    return ExpectedObject(KEY, len(data), whole, 5 * MiB if digests else None, digests)
