"""An account that has MicroVMs and images of known sizes, for what is worked out from these."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.support.peers import Answer, Peer, Request, json_answer, serving

MIB = 2**20
MOMENT = 1789463942.026
MOST_REQUESTS = 1000

Item = dict[str, object]


class Account:
    """A service's answers, by what is asked for. Tests fill the members and change them.

    Attributes:
        microvms: By the id, as GetMicrovm and ListMicrovms answer them.
        versions: By the image's name and the number, as GetMicrovmImageVersion answers them.
        snapshots: By the id of the build, in MiB: of memory, of disk, of code. What has no entry left no snapshot.
        refused: Patterns of the paths that this caller may not use.
        gone: Patterns of the paths that lead nowhere.
        peer: The server that answers.
    """

    def __init__(self) -> None:
        self.peer: Peer
        self.microvms: dict[str, Item] = {}
        self.versions: dict[tuple[str, str], Item] = {}
        self.snapshots: dict[str, tuple[int, int, int]] = {"build-4": (600, 20, 180), "build-3": (500, 12, 180)}
        self.refused: list[str] = []
        self.gone: list[str] = []

    def add_version(self, name: str, number: str, **members: object) -> None:
        """Add a version of an image, of 2048 MiB."""
        self.versions[name, number] = {
            **_image(name),
            "imageVersion": number,
            "state": "SUCCESSFUL",
            "status": "ACTIVE",
            "baseImageArn": "arn:aws:lambda:us-east-1:aws:microvm-image:al2023-1",
            "buildRoleArn": "arn:aws:iam::111122223333:role/build",
            "codeArtifact": {"uri": "s3://bucket/key"},
            "updatedAt": MOMENT,
            "resources": [{"minimumMemoryInMiB": 2048}],
            **members,
        }

    def answer(self, request: Request) -> Answer:
        """What is asked for."""
        path = re.sub("%3A", ":", request.target.partition("?")[0], flags=re.IGNORECASE)
        if any(re.search(pattern, path) for pattern in self.refused):
            message = "User is not authorized to perform this"
            return json_answer(403, {"message": message}, headers={"x-amzn-errortype": "AccessDeniedException"})
        is_gone = any(re.search(pattern, path) for pattern in self.gone)
        for pattern, act in () if is_gone else self._routes():
            found = re.fullmatch(rf"/\d{{4}}-\d\d-\d\d{pattern}", path)
            answer = act(*found.groups()) if found else None
            if answer is not None:
                return json_answer(200, answer)
        return json_answer(404, {"message": "not here"}, headers={"x-amzn-errortype": "ResourceNotFoundException"})

    def _routes(self) -> list[tuple[str, Callable[..., Item | None]]]:
        one = "/microvm-images/arn:aws:lambda:[^/]*:([^:/]*)"
        return [
            ("/microvms", lambda: _page(self.microvms.values())),
            ("/microvms/([^/]*)", self.microvms.get),
            ("/microvm-images", lambda: _page(map(_image, sorted({name for name, _ in self.versions})))),
            (f"{one}/versions", lambda name: _page(each for key, each in self.versions.items() if key[0] == name)),
            (f"{one}/versions/([^/]*)", lambda *key: self.versions.get(key)),
            (f"{one}/versions/([^/]*)/builds", lambda *key: _page(_build(*key, each) for each in BUILDS)),
            (f"{one}/versions/([^/]*)/builds/([^/]*)", lambda *key: {**_build(*key), **self._sizes(key[-1])}),
        ]

    def _sizes(self, build_id: str) -> Item:
        sizes = dict(zip(_SIZES, (size * MIB for size in self.snapshots.get(build_id, ())), strict=False))
        return {"snapshotBuild": sizes}


BUILDS = ("build-4", "build-3", "failed-4")
_SIZES = ("memorySnapshotSizeInBytes", "diskSnapshotSizeInBytes", "codeInstallSizeInBytes")


def _page(items: Iterable[Item]) -> Item:
    return {"items": list(items), "nextToken": None}


def _image(name: str) -> Item:
    arn = f"arn:aws:lambda:us-east-1:111122223333:microvm-image:{name}"
    return {"imageArn": arn, "name": name, "state": "CREATED", "createdAt": MOMENT}


def _build(name: str, number: str, build_id: str) -> Item:
    kind, _, generation = build_id.partition("-")
    return {
        **_image(name),
        "imageVersion": number,
        "buildId": build_id,
        "buildState": "FAILED" if kind == "failed" else "SUCCESSFUL",
        "architecture": "ARM_64",
        "chipset": "GRAVITON",
        "chipsetGeneration": generation,
    }


def microvm(microvm_id: str, **members: object) -> Item:
    """A MicroVM that began just now and stays awake."""
    return {
        **_image("demo"),
        "microvmId": microvm_id,
        "state": "RUNNING",
        "endpoint": "0000.lambda-microvm.us-east-1.on.aws",
        "imageVersion": "1.0",
        "maximumDurationInSeconds": 28_800,
        "startedAt": time.time(),
        "idlePolicy": None,
        **members,
    }


@pytest.fixture
def priced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    """An account with version 1.0 of the image ``demo``, whose service is the one of this process."""
    for name, value in {
        "AGENT_SANDBOX_STATE": str(tmp_path / "state.json"),
        "AGENT_SANDBOX_LOCAL_DIR": str(tmp_path / "local"),
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    made = Account()
    made.add_version("demo", "1.0")
    with serving(*[made.answer] * MOST_REQUESTS) as peer:
        monkeypatch.setenv("AWS_ENDPOINT_URL", peer.url)
        made.peer = peer
        yield made
