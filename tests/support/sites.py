"""Real servers in a sandbox: Vite and FastAPI, which ``tools/test --all`` installs beside the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cloud import LocalCloud
from tests.support.paths import ROOT, TOOLS
from vmnest import Process, Sandbox

SITES = ROOT / "tests" / "sites"
VITE_PORT = 5173
FASTAPI_PORT = 8000
READY_SECONDS = 30.0


@pytest.fixture(scope="module")
def site_sandbox(shared_cloud: LocalCloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A local sandbox for servers, and its cloud in the environment of this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENT_SANDBOX_LOCAL_DIR", shared_cloud.folder)
        patch.setenv("AGENT_SANDBOX_STATE", str(tmp_path_factory.mktemp("sites") / "state.json"))
        patch.delenv("AGENT_SANDBOX_WORKDIR", raising=False)
        with Sandbox.create("site", local=True) as sandbox:
            yield sandbox


def _installed(name: str, pattern: str) -> Path:
    """What ``tools/test --all`` installs under that name."""
    found = sorted((TOOLS / name).glob(pattern))
    if not found:
        pytest.skip(f"{name} is not installed: run tools/test --all")
    return found[0]


def wait_for_line(server: Process, text: str) -> None:
    """Read what a server prints until it prints this; the rest of its output is nobody's business."""
    seen = []
    for line in server.lines(timeout=READY_SECONDS):
        seen.append(line.text)
        if text in line.text:
            return
    pytest.fail(f"the server ended with {server.wait()}:\n" + "\n".join(seen))


@pytest.fixture(scope="module")
def vite(site_sandbox: Sandbox) -> Iterator[str]:
    """A Vite server as ``npm run dev`` starts it: at ``localhost``, checking hosts. The folder of its site."""
    modules = _installed("vite", "node_modules")
    folder = "/work/vite"
    site_sandbox.files.upload(SITES / "vite", folder)
    site_sandbox.files.upload(modules, f"{folder}/node_modules")
    words = ["node_modules/vite/bin/vite.js", "--port", str(VITE_PORT), "--strictPort", "--clearScreen", "false"]
    with site_sandbox.spawn("node", words, cwd=folder, retain="drop") as server:
        wait_for_line(server, "Local:")
        yield folder


@pytest.fixture(scope="module")
def fastapi(site_sandbox: Sandbox) -> Iterator[str]:
    """A FastAPI application under uvicorn. The folder of its site."""
    packages = _installed("fastapi", "lib/python3.*/site-packages")
    folder = "/work/fastapi"
    site_sandbox.files.upload(SITES / "fastapi", folder, exclude=["__pycache__"])
    site_sandbox.files.upload(packages, f"{folder}/packages", exclude=["__pycache__", "pip", "setuptools"])
    words = ["-m", "uvicorn", "app:app", "--port", str(FASTAPI_PORT)]
    environ = {"PYTHONPATH": f"{folder}/packages"}
    with site_sandbox.spawn("python3", words, cwd=folder, env=environ, retain="drop") as server:
        wait_for_line(server, "running on")
        yield folder
