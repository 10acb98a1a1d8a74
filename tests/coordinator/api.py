"""A small client of the runner API for tests: it sends what it is told, even what is wrong."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Any

import httpx

RUNNER = "/lastgood/v1/runner"
WORKLOAD, STAGE = "resnet", "pretrain"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class Saved:
    """An attempt with what was said about it."""

    attempt: str
    fencing_token: str
    manifest: dict[str, Any]
    answer: dict[str, Any]


@dataclass
class Writer:
    """One generation of a stage, as its token sees the API."""

    api: Api
    token: str
    generation: int
    workload: str = WORKLOAD
    stage: str = STAGE
    answer: dict[str, Any] = field(default_factory=dict)

    def post(self, path: str, body: Any, token: str | None = None) -> httpx.Response:
        return self.api.post(path, body, token or self.token)

    def prepare(self, sequence: int, files: dict[str, bytes], **other: Any) -> httpx.Response:
        body = {
            "sequence": sequence,
            "step": sequence * 10,
            "idempotency_key": f"prepare-{sequence}",
            "objects": [{"path": path, "bytes": len(data)} for path, data in files.items()],
        }
        return self.post("checkpoints/prepare", {**body, **other})

    def put(
        self, attempt: str, path: str, data: bytes, part: int = 1, token: str | None = None
    ) -> httpx.Response:
        return self.api.client.put(
            f"{RUNNER}/objects/{attempt}/{path}",
            params={"part": part},
            content=data,
            headers=bearer(token or self.token),
        )

    def upload(self, sequence: int, files: dict[str, bytes], **other: Any) -> Saved:
        """Prepare and send everything."""
        prepared = ok(self.prepare(sequence, files, **other), 201)
        for path, data in files.items():
            ok(self.put(prepared["attempt"], path, data, token=prepared["fencing_token"]))
        return Saved(
            prepared["attempt"],
            prepared["fencing_token"],
            self.manifest(sequence, files),
            prepared,
        )

    def manifest(self, sequence: int, files: dict[str, bytes], **other: Any) -> dict[str, Any]:
        document = {
            "format_version": 1,
            "project": self.api.project,
            "workload": self.workload,
            "stage": self.stage,
            "generation": self.generation,
            "sequence": sequence,
            "step": sequence * 10,
            "kind": "full",
            "world_size": 1,
            "sharding": {},
            "objects": [
                {
                    "path": path,
                    "bytes": len(data),
                    "sha256": sha256(data),
                    "rank": 0,
                    "part_bytes": None,
                    "part_sha256": None,
                }
                for path, data in sorted(files.items(), key=lambda item: item[0].encode())
            ],
            "runtime": dict.fromkeys(
                (
                    "model_config",
                    "tokenizer",
                    "optimizer",
                    "rng_state",
                    "data_cursor",
                    "code_version",
                    "container_digest",
                )
            ),
            "runtime_contract_version": None,
            "restore": None,
            "metrics": {"eval/loss": 1.0 / (sequence + 1)},
            "resumed_from": None,
            "dependencies": [],
            "outputs": [],
            "final": False,
        }
        return {**document, **other}

    def commit(self, attempt: str, manifest: dict[str, Any]) -> httpx.Response:
        return self.post("checkpoints/commit", {"attempt": attempt, "manifest": manifest})

    def save(self, sequence: int, files: dict[str, bytes] | None = None) -> dict[str, Any]:
        """A whole checkpoint; answers what the commit answered."""
        saved = self.upload(sequence, files or {"model.bin": secrets.token_bytes(64)})
        return ok(self.commit(saved.attempt, saved.manifest))


@dataclass
class Api:
    """The runner API of one project."""

    client: httpx.Client
    project: str
    key: str

    def post(self, path: str, body: Any, token: str | None = None) -> httpx.Response:
        return self.client.post(f"{RUNNER}/{path}", json=body, headers=bearer(token or self.key))

    def get(self, path: str, /, token: str | None = None, **query: Any) -> httpx.Response:
        return self.client.get(f"{RUNNER}/{path}", params=query, headers=bearer(token or self.key))

    def acquire(self, after: int, key: str | None = None, **other: Any) -> httpx.Response:
        body = {
            "workload": WORKLOAD,
            "stage": STAGE,
            "after": after,
            "idempotency_key": key or f"acquire-{after}",
            "holder": "node-1",
        }
        return self.post("generations", {**body, **other})

    def writer(self, after: int = 0, **other: Any) -> Writer:
        answer = ok(self.acquire(after, **other), 201)
        return Writer(
            self,
            answer["token"],
            answer["generation"],
            answer["workload"],
            answer["stage"],
            answer,
        )

    def latest(self) -> dict[str, Any]:
        return ok(self.get("checkpoints/latest", workload=WORKLOAD, stage=STAGE))

    def reader(self, checkpoint: str = "latest", **other: Any) -> httpx.Response:
        body = {
            "workload": WORKLOAD,
            "stage": STAGE,
            "checkpoint": checkpoint,
            "reader": "eval-1",
        }
        return self.post("readers", {**body, **other})


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def ok(response: httpx.Response, status: int = 200) -> dict[str, Any]:
    """The JSON of an answer that has to be good."""
    assert response.status_code == status, response.text
    document: dict[str, Any] = response.json() if response.content else {}
    return document


def refused(response: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    """The problem document of an answer that has to be this refusal."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert document["type"] == kind, document
    assert document["status"] == status
    return document
