"""A login shell in a sandbox, for a person at a terminal or for a script on standard input."""

from __future__ import annotations

from ..wire import names
from . import commands, sandboxes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..sandbox.native import NativeShell

__all__ = ["open_native_shell", "run_shell"]


def run_shell(
    *,
    name: str,
    front: commands.Front,
    terminal: tuple[int, int] | None,
    user: str | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    resume: bool = True,
    local: bool | None = None,
    region: str | None = None,
) -> dict[str, object]:
    """Run a login shell (bash, or sh where there is none) and wait for its end. A suspended sandbox is resumed.

    Args:
        name: The sandbox.
        front: Attends to the shell.
        terminal: Columns and rows of the shell's terminal; None: it has none, and reads a script.
        user: User to run it as, a name or a number; the agent's by default.
        cwd: The shell's working directory.
        env: Environment variables to add.
        resume: False: refuse a suspended sandbox instead of resuming it.
        local: True: only look for it on this machine.
        region: AWS region, instead of the recorded one.
    """
    command = commands.Command(
        ("sh", "-c", names.LOGIN_SHELL), cwd=cwd, env=env, user=user, takes_input=True, terminal=terminal
    )
    return commands.exec_command(name=name, command=command, resume=resume, local=local, region=region, front=front)


def open_native_shell(
    *, name: str, resume: bool = True, local: bool | None = None, region: str | None = None
) -> NativeShell:
    """Open the service's own shell in a sandbox that was made with ``SHELL_INGRESS``.

    Args:
        name: The sandbox.
        resume: False: refuse a suspended sandbox instead of resuming it.
        local: True: only look for it on this machine.
        region: AWS region, instead of the recorded one.
    """
    sandbox = sandboxes.open_sandbox(name, resume=resume, local=local, region=region)
    return sandbox.open_native_shell()
