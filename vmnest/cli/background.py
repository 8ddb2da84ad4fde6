"""A command that goes on in the background once its beginning has gone well."""

from __future__ import annotations

import os
import sys

from .. import errors, registry
from . import failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["log", "start"]

MAX_LOG_BYTES = 256 * 1024
_PIECE_BYTES = 65536


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
    path = _log_path(log_name)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _live(work, writer=writer, path=path)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    return {**_take(data), "pid": pid, "log": path}


def log(text: str) -> None:
    """A remark of the process in the background; the log is bounded."""
    if os.fstat(2).st_size < MAX_LOG_BYTES:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def _log_path(name: str) -> str:
    folder = os.path.dirname(registry.locate().path)
    return os.path.join(folder, f"{name}-{os.urandom(3).hex()}.log")


def _take(data: bytes) -> dict[str, object]:
    import pickle

    if not data:
        raise errors.VmnestError("the process in the background ended without a word")
    found = pickle.loads(data)  # noqa: S301 - from a process that this one has made
    if isinstance(found, errors.VmnestError):
        raise found
    assert isinstance(found, dict)
    return found


def _live(work: Callable[[Callable[[dict[str, object]], None]], None], *, writer: int, path: str) -> None:
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
        _leave_terminal(path)
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
        if os.path.exists(path) and os.path.getsize(path) == 0:
            os.unlink(path)
        os._exit(status)


def _leave_terminal(path: str) -> None:
    os.setsid()
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    nothing = os.open(os.devnull, os.O_RDWR)
    written = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
    for number, source in ((0, nothing), (1, written), (2, written)):
        os.dup2(source, number)
    os.close(nothing)
    os.close(written)
    os.chdir("/")
