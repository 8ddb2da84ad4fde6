"""What ended a command early, as an exit status and as text or JSON on standard error."""

from __future__ import annotations

from .. import errors
from . import render, terminal

__all__ = ["Ended", "report"]

SIGNAL_BASE = 128
SIGPIPE = 13
_FOR_COMMANDS = frozenset(
    {
        errors.EXIT_TIMED_OUT,
        errors.EXIT_SANDBOX_FAILED,
        errors.EXIT_NOT_EXECUTABLE,
        errors.EXIT_COMMAND_NOT_FOUND,
    }
)


class Ended(BaseException):
    """A signal that ends the process was received; like KeyboardInterrupt it passes every ``except Exception``."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _InterruptedError(errors.VmnestError):
    code = "interrupted"
    exit_status = errors.EXIT_INTERRUPTED


class _InternalError(errors.VmnestError):
    code = "internal"


def report(error: BaseException, *, json: bool = False, debug: bool = False, is_exec: bool = False) -> int:
    """Tell the user about the error and return the exit status.

    Args:
        error: What was raised.
        json: Tell it as one JSON object.
        debug: Show the traceback too.
        is_exec: The verb's exit status is that of a command in a sandbox: our own failures are 125 then.
    """
    if isinstance(error, BrokenPipeError):
        return SIGNAL_BASE + SIGPIPE  # whoever read our output has gone (``| head``), and wants to hear no more
    shown = _translate(error)
    terminal.tell(_render(shown, error, json=json, debug=debug))
    if isinstance(error, Ended):
        return SIGNAL_BASE + error.number
    return _exit_status(shown, is_exec=is_exec)


def _exit_status(shown: errors.VmnestError, *, is_exec: bool) -> int:
    """Where the status is a command's, ours must not pass for one; elsewhere those for commands mean nothing."""
    if is_exec:
        is_ours = shown.exit_status in (errors.EXIT_FAILED, errors.EXIT_NOT_FOUND)
        return errors.EXIT_SANDBOX_FAILED if is_ours else shown.exit_status
    return errors.EXIT_FAILED if shown.exit_status in _FOR_COMMANDS else shown.exit_status


def _translate(error: BaseException) -> errors.VmnestError:
    if isinstance(error, errors.VmnestError):
        return error
    if isinstance(error, (KeyboardInterrupt, Ended)):
        return _InterruptedError("interrupted")
    if isinstance(error, ModuleNotFoundError):
        from ..ops.checks import host

        if (missing := host.missing(error)) is not None:
            return missing
    return _InternalError(
        f"this should not have happened: {type(error).__name__}: {error}",
        hint="It is a fault of vmnest. The option --debug shows where it is.",
    )


def _render(shown: errors.VmnestError, error: BaseException, *, json: bool, debug: bool) -> str:
    trace = _trace(error) if debug else ""
    if json:
        wire = shown.to_wire()
        return render.render_json({"error": {**wire, "traceback": trace} if trace else wire})
    red, plain = ("\x1b[1;31m", "\x1b[0m") if terminal.want_colour(terminal.STDERR) else ("", "")
    room = terminal.room(terminal.STDERR)
    hint = render.render_hint(errors.redact(shown.hint or ""), room=room)
    return f"{trace}{red}vmnest:{plain} {render.render_remark(shown.message, room=room)}{hint}"


def _trace(error: BaseException) -> str:
    import traceback

    return errors.redact("".join(traceback.format_exception(error)))
