"""Builds in real sandboxes, without a daemon."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.artifacts import make_zip
from vmnest.local import build_cells, builder
from vmnest.local.drivers import namespace

ARN = "arn:aws:lambda:us-east-1:000000000000:microvm-image:demo"
Members = Mapping[str, Any]


def describe(**changes: Any) -> builder.BuildSpec:
    """What is to be built; nothing is reached."""
    values: dict[str, Any] = {
        "image_name": "demo", "image_arn": ARN, "version": "1.0", "environment": {}, "hooks": None,
        "memory_mib": 512, "egress_allow": (),
    }  # fmt: skip
    return builder.BuildSpec(**{**values, **changes})


class Gate:
    """Answers one connection from a sandbox, and writes down what it was to allow."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self.allowed = tuple(allowed)
        self.is_closed = False
        self._wake, self._waker = socket.socketpair()
        self._thread: threading.Thread | None = None

    def serve(self, listener: socket.socket) -> None:
        self._thread = threading.Thread(target=self._answer, args=(listener,))
        self._thread.start()

    def _answer(self, listener: socket.socket) -> None:
        with listener:
            poller = select.poll()
            poller.register(listener, select.POLLIN)
            poller.register(self._wake, select.POLLIN)
            if listener.fileno() in dict(poller.poll()):
                with listener.accept()[0] as sock:
                    sock.sendall(b"let out")

    def close(self) -> None:
        self.is_closed = True
        self._waker.close()
        if self._thread is not None:
            self._thread.join()
        self._wake.close()


@dataclass
class Builds:
    """A builder in a folder of its own, and what its builds said."""

    driver: namespace.NamespaceDriver
    folder: Path
    lines: list[str] = field(default_factory=list)
    gates: list[Gate] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.builder = builder.Builder(self.driver, str(self.folder), way_out=self._let_out, disk_bytes=1 << 28)

    def _let_out(self, allowed: Sequence[str], log: builder.Log) -> Gate:
        self.gates.append(Gate(allowed))
        return self.gates[-1]

    def build(self, dockerfile: str, members: Members | None = None, **changes: Any) -> builder.Built:
        """Build an image; without another command it sleeps."""
        files = {"Dockerfile": dockerfile, **(members or {})}
        self.lines.clear()
        return self.builder.build(make_zip(files), spec=describe(**changes), log=self.lines.append)

    def fail(self, dockerfile: str, members: Members | None = None, **changes: Any) -> builder.BuildFailed:
        """How a build fails."""
        with pytest.raises(builder.BuildFailed) as caught:
            self.build(dockerfile, members, **changes)
        return caught.value

    def show(self, built: builder.Built, script: str, **changes: Any) -> str:
        """What a script prints in a VM of an image."""
        cells = build_cells.Cells(self.driver, str(self.folder), disk_bytes=1 << 28)
        layers = tuple(str(self.folder / "layers" / name) for name in built.layers)
        said: list[str] = []
        step = build_cells.Step(
            ("/bin/sh", "-c", script), layers, environment=built.config.environment, workdir=built.config.workdir
        )
        cells.run(step, log=said.append)
        return "\n".join(said)

    def left(self) -> list[str]:
        """What builds left besides layers."""
        return [str(path) for name in ("builds", "vms") for path in (self.folder / name).glob("*")]


@pytest.fixture
def builds(cell_driver: namespace.NamespaceDriver, tmp_path: Path) -> Iterator[Builds]:
    """Builds that leave nothing but layers."""
    if cell_driver.obstacle_to_images:
        pytest.skip(f"no images here: {cell_driver.obstacle_to_images}")
    one = Builds(cell_driver, tmp_path)
    before = threading.active_count()
    yield one
    one.builder.close()
    assert one.left() == []
    assert threading.active_count() <= before + 1  # the driver's own may have begun meanwhile
