"""Shells in sandboxes, as the verbs open them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cloud import open_cloud
from tests.support.fronts import RecordingFront
from vmnest import errors
from vmnest.agent.results import ExecResult
from vmnest.ops import creation, lifecycle, removal, sandboxes, shell
from vmnest.sandbox import Process


class TypingFront(RecordingFront):
    """Types a line, and looks on."""

    def __init__(self, line: bytes) -> None:
        super().__init__()
        self._line = line

    def attend(self, process: Process) -> ExecResult | None:
        process.write(self._line)
        return super().attend(process)


@pytest.fixture(scope="module")
def box() -> Iterator[str]:
    with open_cloud() as cloud, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENT_SANDBOX_LOCAL_DIR", cloud.folder)
        patch.setenv("AGENT_SANDBOX_STATE", f"{cloud.folder}/state.json")
        patch.setenv("AGENT_SANDBOX_TARGET", "local")
        ingress = ["HTTP_INGRESS", "SHELL_INGRESS"]
        sandboxes.create_sandbox(name="box", demand=creation.Demand(ingress=ingress))
        yield "box"
        removal.remove_sandbox(name="box")


def test_without_a_terminal_its_input_is_a_script(box: str) -> None:
    front = TypingFront(b"tty; pwd; echo $A; shopt -q login_shell && echo login >&2; exit 3\n")
    data = shell.run_shell(name=box, front=front, terminal=None, cwd="/tmp", env={"A": "b"})
    assert (data["exit_code"], front.outputs) == (3, {"stdout": b"not a tty\n/tmp\nb\n", "stderr": b"login\n"})


def test_with_a_terminal_it_has_that_size(box: str) -> None:
    front = TypingFront(b"stty size; exit\r")
    assert shell.run_shell(name=box, front=front, terminal=(99, 44))["exit_code"] == 0
    assert b"44 99\r\n" in front.outputs["stdout"]


def test_a_user_that_is_not_there_is_an_error(box: str) -> None:
    with pytest.raises(errors.ExecError):
        shell.run_shell(name=box, front=RecordingFront(), terminal=(80, 24), user="no-such-user")


def test_the_services_own_shell(box: str) -> None:
    with shell.open_native_shell(name=box) as native:
        native.write(b"echo to''day; exit\r")
        assert b"today\r\n" in b"".join(chunk.data for chunk in native.chunks())


def test_neither_resumes_a_sandbox_if_that_is_not_wanted(box: str) -> None:
    lifecycle.stop_sandbox(name=box)
    with pytest.raises(errors.SandboxSuspendedError):
        shell.run_shell(name=box, front=RecordingFront(), terminal=None, resume=False)
    with pytest.raises(errors.SandboxSuspendedError):
        shell.open_native_shell(name=box, resume=False)
    lifecycle.start_sandbox(name=box)
