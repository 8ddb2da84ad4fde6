"""A state file: read whole, changed under a lock, replaced at once, never lost.

- A reader takes no lock and writes nothing: a writer puts a whole new file in place by a rename, so that a reader sees
  the old one or the new one.
- Writers exclude each other by a lock on a file beside it (never on the file itself, which the rename replaces).
- Folders are made 0700 and files 0600 from the start.
- Each holds one JSON object with the number of its schema: what a newer version has written is refused, not guessed at.
"""

from __future__ import annotations

import json
import os
import stat
import time

from . import deadline as deadlines
from . import errors, systems

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

__all__ = ["DamagedError", "Lock", "damaged", "keep_copy", "load", "parse", "replace", "unusable"]

LARGEST_BYTES = 64 * 2**20
LOCK_WAIT_SECONDS = 20.0
# Holders are gone within milliseconds, and locks have no timeout of their own.
LOCK_POLL_SECONDS = 0.005


def load(path: str) -> bytes:
    """The file's bytes; none if there is no file.

    Raises:
        errors.StateFileError: what is there cannot be read as a file.
    """
    try:
        # O_NONBLOCK: a FIFO in this place is to be refused, not waited for.
        fd = os.open(path, os.O_RDONLY | systems.CLOEXEC | systems.NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as error:
        raise unusable("read", path, reason=error.strerror) from error
    try:
        return _read(fd, path)
    finally:
        os.close(fd)


def _read(fd: int, path: str) -> bytes:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise unusable("read", path, reason="it is not a regular file")
    if status.st_size > LARGEST_BYTES:
        raise unusable("read", path, reason=f"it has {status.st_size} bytes")
    with open(fd, "rb", closefd=False) as file:
        return file.read()


class DamagedError(ValueError):
    """A file's bytes are not what they should be."""


def parse(data: bytes, path: str, *, schema: int, setting: str) -> dict[str, Any]:
    """The members of the one object in a file, but for the schema's number; none of a file that is empty.

    Args:
        data: The file's bytes.
        path: Where it is.
        schema: The newest number that is known.
        setting: The variable that names another file.

    Raises:
        DamagedError: there is no such object.
        errors.StateFileError: a newer version has written it.
    """
    if not data:
        return {}  # no file, or one that was only just made (mktemp): nothing in it to lose
    try:
        members = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"not JSON ({error})") from error
    if not isinstance(members, dict):
        raise DamagedError("not an object")
    number = members.pop("schema", schema)
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise DamagedError("wrong schema number")
    if number > schema:
        raise errors.StateFileError(
            f"the state file {path} was written by a newer version of vmnest (schema {number}, known here: {schema})",
            hint=f"Upgrade vmnest, or name another file in {setting}. Nothing was changed.",
        )
    return members


def damaged(path: str, *, reason: str, remedy: str, copy: str | None = None) -> errors.StateFileError:
    """The error for a file that is not what it should be; ``remedy`` ends the sentence "Repair the file, or …"."""
    kept = f" A copy is kept in {copy}." if copy else ""
    return errors.StateFileError(
        f"the state file {path} is damaged: {reason}",
        hint=f"Nothing was changed.{kept} Repair the file, or {remedy}",
    )


def unusable(verb: str, path: str, *, reason: str | None) -> errors.StateFileError:
    """The error for a file that cannot be read or written."""
    return errors.StateFileError(
        f"cannot {verb} the state file {path}: {reason}",
        hint="Set AGENT_SANDBOX_STATE (for infrastructure AGENT_SANDBOX_INFRA_STATE) to a file that can be used.",
    )


class Lock:
    """The lock that writers of ``path`` take: ``with Lock(path): …``. Makes the folder if there is none.

    Raises:
        errors.StateFileError: the place is not writable, or somebody holds the lock for very long.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = systems.FileLock(f"{path}.lock")

    def __enter__(self) -> Lock:
        try:
            systems.make_private_folder(os.path.dirname(self._path))
            self._wait()
        except OSError as error:
            self._lock.release()
            raise unusable("write", self._path, reason=error.strerror) from error
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def _wait(self) -> None:
        deadline = deadlines.Deadline(LOCK_WAIT_SECONDS)
        while not self._lock.try_take():
            if deadline.expired:
                raise errors.StateFileError(
                    f"another process keeps {self._path}.lock locked",
                    hint="Look for a vmnest process that is stopped, and end it.",
                )
            time.sleep(LOCK_POLL_SECONDS)


def replace(path: str, data: bytes) -> None:
    """Put a new file in place at once: after a crash there is the old one or the new one. The caller holds the lock.

    Raises:
        errors.StateFileError: it cannot be written; the old one is untouched.
    """
    temporary = f"{path}.{os.getpid()}.{os.urandom(6).hex()}.tmp"
    try:
        try:
            _write_new(temporary, data)
            os.replace(temporary, path)
        except BaseException:
            _remove(temporary)
            raise
        _sync_folder(os.path.dirname(path))
    except OSError as error:
        raise unusable("write", path, reason=error.strerror) from error


def _sync_folder(folder: str) -> None:
    if not systems.DIRECTORY:  # a system on which folders cannot be opened
        return
    fd = os.open(folder, os.O_RDONLY | systems.DIRECTORY | systems.CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_new(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | systems.CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def keep_copy(path: str, data: bytes) -> str:
    """Write ``data`` beside the file under a free name (``….bad``) and return it; one that holds it already will do.

    Raises:
        errors.StateFileError: it cannot be written.
    """
    for number in range(100):
        copy = f"{path}.bad{'.' + str(number) if number else ''}"
        try:
            _write_new(copy, data)
        except FileExistsError:
            if load(copy) != data:
                continue
        except OSError as error:
            raise unusable("write", copy, reason=error.strerror) from error
        return copy
    raise errors.StateFileError(f"there are too many damaged copies beside {path}", hint="Remove those not needed.")
