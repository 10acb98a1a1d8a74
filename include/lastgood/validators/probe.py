"""The isolated process of the validation of level `format`: it loads every tensor of a folder.

`python -I -m lastgood.validators.probe REQUEST REPORT` reads a JSON document (see `formatting`) and
writes lines of JSON: where a file begins, problems, gaps (what could not be looked at, which proves
nothing), and at the end `done`. Without that last line it did not come to its end.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from lastgood.validators.declared import number_problems, rank_problems, tensor_problems
from lastgood.validators.formats.base import Broken, Checkpoint, Format, Problem, installed, shown

PROBLEMS_LIMIT = 1000


def main() -> None:
    """Validate what the request names."""
    request = json.loads(Path(sys.argv[1]).read_text())
    with open(sys.argv[2], "w") as report:
        _probe(request, report)


def _probe(request: Mapping[str, Any], report: TextIO) -> None:
    objects: Sequence[tuple[str, int, int | None]] = request["objects"]
    checkpoint = Checkpoint(
        root=request["root"],
        sizes={path: size_bytes for path, size_bytes, _ in objects},
        step=request["step"],
        world_size=request["world_size"],
        non_finite=request["non_finite"],
        pickle_globals=frozenset(request["pickle_globals"]),
    )
    told = 0

    def tell(problem: Problem) -> None:
        nonlocal told
        told += 1
        if told <= PROBLEMS_LIMIT:
            _write(report, event="problem", **problem.to_json())

    for problem in _size_problems(checkpoint, report):
        tell(problem)
    for one in installed():
        for group in _claims(one, checkpoint, report):
            checkpoint.claimed.update(group)
            _write(report, event="begin", path=group[0])
            for problem in _checked(one, checkpoint, group, report):
                tell(problem)
    ranks = [rank for _, _, rank in objects if rank is not None]
    for problem in rank_problems(ranks, request["world_size"], request["sharding"]):
        tell(problem)
    for problem in number_problems(checkpoint.sizes if request["whole"] else ()):
        tell(problem)
    for problem in tensor_problems(checkpoint, request["sharding"]):
        tell(problem)
    _write(
        report,
        event="done",
        problems=told,
        files=len(checkpoint.claimed),
        unknown=sorted(set(checkpoint.sizes) - checkpoint.claimed)[:100],
        tensors=sum(len(tensors) for tensors in checkpoint.tensors.values()),
        bytes_read=checkpoint.bytes_read,
    )


def _write(report: TextIO, **content: Any) -> None:
    report.write(json.dumps(content) + "\n")
    report.flush()


def _size_problems(checkpoint: Checkpoint, report: TextIO) -> Iterator[Problem]:
    for path, size_bytes in checkpoint.sizes.items():
        try:
            with checkpoint.open(path) as file:
                found = file.seek(0, 2)
        except Broken as broken:
            yield broken.problem
        except OSError as error:
            _write(report, event="gap", path=path, reason=_named(error))
        else:
            if found != size_bytes:
                yield Problem(path, None, f"it has {found} bytes, the manifest says {size_bytes}")


def _claims(one: Format, checkpoint: Checkpoint, report: TextIO) -> Sequence[Sequence[str]]:
    try:
        return one.claims(checkpoint)
    except MemoryError:
        raise
    except Exception as error:
        _write(report, event="gap", path=None, reason=f"format {one.name}: {_named(error)}")
        return ()


def _checked(
    one: Format, checkpoint: Checkpoint, group: Sequence[str], report: TextIO
) -> Iterator[Problem]:
    try:
        yield from one.check(checkpoint, group)
        checkpoint.loaded.update(group)
    except Broken as broken:
        yield broken.problem
    except MemoryError:
        raise
    except Exception as error:  # a fault of the plug-in, or of the disk: no proof either way
        reason = f"format {one.name} could not go on: {_named(error)}"
        _write(report, event="gap", path=group[0], reason=reason)


def _named(error: Exception) -> str:
    return shown(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
