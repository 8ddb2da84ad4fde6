"""http.server without OpenSSL, in processes of their own: what is imported here is imported for good."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.agent import GUEST


def run(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": str(GUEST)}, check=True)


def test_the_agent_starts_without_openssl() -> None:
    run("import sys; from agentd import lean, server; assert not {'ssl', '_ssl'} & set(sys.modules)")


def test_ssl_can_be_imported_afterwards() -> None:
    run("from agentd import lean; import ssl; ssl.create_default_context()")


def test_a_process_that_has_ssl_keeps_it() -> None:
    run("import ssl, sys; from agentd import lean; assert sys.modules['ssl'] is ssl; lean.client.HTTPSConnection")


@pytest.mark.parametrize("name", ["tempfile", "traceback", "logging", "dataclasses", "typing", "asyncio", "secrets"])
def test_what_is_heavy_and_seldom_needed_is_not_loaded_at_the_start(name: str) -> None:
    # -S: some installations load half the library on behalf of their .pth files.
    modules = "config, drain, handlers, hooks, identity, process, server, state"
    program = f"import sys; sys.path.insert(0, {str(GUEST)!r}); from agentd import {modules}"
    program += f"; assert {name!r} not in sys.modules"
    subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True)
