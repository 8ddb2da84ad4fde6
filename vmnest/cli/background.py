"""A command that goes on in the background once its beginning has gone well."""

from __future__ import annotations

import os
import signal
import sys

from .. import errors, registry, systems
from . import failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["log", "start"]

MAX_LOG_BYTES = 256 * 1024
_MOST_FILES = 65536  # that a process has open, as far as it matters


def start(work: Callable[[Callable[[dict[str, object]], None]], None], *, log_name: str) -> dict[str, object]:
    """Run ``work`` in a process of its own, and return what it hands to its argument, with ``pid`` and ``log``.

    That process has no terminal and outlives this one; what it prints goes to a file beside the names of sandboxes.
    Call this before anything has started a thread.

    Raises:
        errors.VmnestError: what ``work`` raises before it has called its argument.
        errors.UnsupportedError: this system cannot do so.
    """
    if not hasattr(os, "fork"):
        raise errors.UnsupportedError("nothing runs in the background on this system", hint="Leave --background out.")
    path, written = _open_log(log_name)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _live(work, writer=writer, path=path, written=written)
    os.close(writer)
    os.close(written)
    try:
        with os.fdopen(reader, "rb") as pipe:
            data = pipe.read()
        return {**_take(data), "pid": pid, "log": path}
    except BaseException:  # Ctrl+C before it has begun: it must not go on
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        raise


def log(text: str) -> None:
    """A remark of the process in the background; the log is bounded."""
    if os.fstat(2).st_size < MAX_LOG_BYTES:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _open_log(name: str) -> tuple[str, int]:
    folder = os.path.dirname(registry.locate().path)
    path = os.path.join(folder, f"{name}-{os.urandom(3).hex()}.log")
    try:
        systems.make_private_folder(folder)
        return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    except OSError as error:
        raise errors.VmnestError(f"cannot write the log {path}: {error.strerror}") from error


def _take(data: bytes) -> dict[str, object]:
    import pickle

    if not data:
        raise errors.VmnestError("the process in the background ended without a word")
    found = pickle.loads(data)  # noqa: S301 - from a process that this one has made
    if isinstance(found, errors.VmnestError):
        raise found
    assert isinstance(found, dict)
    return found


def _live(work: Callable[[Callable[[dict[str, object]], None]], None], *, writer: int, path: str, written: int) -> None:
    """The life of the process in the background. Does not return."""
    import pickle

    told = False

    def tell(what: object) -> None:
        nonlocal told
        told = True
        os.write(writer, pickle.dumps(what))
        os.close(writer)

    status = 0
    try:
        _leave_terminal(written, writer)
        _log_warnings()
        work(tell)
    except errors.VmnestError as error:
        status = error.exit_status
        if told:
            log(f"ended: {error.message}")
        else:
            tell(error)
    except failure.Ended as ended:
        status = 128 + ended.number
    except Exception:  # the last line of the process
        import traceback

        log(traceback.format_exc())
        status = 1
    finally:
        if os.fstat(written).st_size == 0:
            os.unlink(path)
        os._exit(status)


def _leave_terminal(written: int, writer: int) -> None:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number, source in ((0, nothing), (1, written), (2, written)):
        os.dup2(source, number)
    # What else was inherited, a lock perhaps, is not to be held for as long as this runs.
    kept = sorted({written, writer})
    for below, above in zip((2, *kept), (*kept, _MOST_FILES), strict=True):
        os.closerange(below + 1, above)
    os.chdir("/")


def _log_warnings() -> None:
    """The library's warnings are bounded too."""
    import logging

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            log(self.format(record))

    logging.getLogger(__package__.rpartition(".")[0]).addHandler(Lines(logging.WARNING))
