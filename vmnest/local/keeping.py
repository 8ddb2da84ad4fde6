"""The account's records on disk: JSON files (0600) below ``<folder>/account`` (0700).

A record is written beside its place and renamed; one that is damaged is kept aside as ``….bad``. Hundreds of objects
may come at once: what is not ``synced`` may be lost, or damaged, should the machine itself lose its power.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable
from typing import TypeVar

from .. import rendezvous

_LOG = logging.getLogger(__name__)

FOLDER = "account"
BAD = ".bad"
MAX_RECORD_BYTES = 64 << 20
Record = TypeVar("Record")


def open_folder(path: str) -> str:
    """Make a folder of ours, and those above it, if they are not there; the path."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path


def load(path: str, parse: Callable[[object], Record]) -> Record | None:
    """The record in that file, or None if there is none, or none that can be used.

    Args:
        path: The file.
        parse: Makes the record of the JSON value; raises ValueError if it makes no sense.
    """
    try:
        # O_NONBLOCK: whatever else somebody put there, a pipe say, must not keep a daemon from starting.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            return parse(json.loads(file.read(MAX_RECORD_BYTES)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        _LOG.warning("%s is damaged, and kept as %s%s: %s", path, os.path.basename(path), BAD, error)
        with contextlib.suppress(OSError):
            os.rename(path, path + BAD)
        return None


def save(path: str, record: object, *, synced: bool = True) -> None:
    """Put a record in place of the one that was there.

    Raises:
        errors.LocalCloudError: it cannot be written; the one that was there is untouched.
    """
    data = json.dumps(record).encode()
    if synced:
        rendezvous.write_file(path, data)
        return
    temporary = f"{path}.{os.urandom(4).hex()}.tmp"
    try:
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(data)
            os.rename(temporary, path)
        except OSError:
            remove(temporary)  # the little that fits on a full disk is needed by others
            raise
    except OSError as error:
        raise rendezvous.unusable(path, error) from error


def remove(path: str) -> None:
    """Remove a file; one that is not there is fine."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def files(folder: str, suffix: str) -> list[str]:
    """The plain files in that folder whose names end so. What a daemon left that was killed while it wrote is removed.

    A folder that is not there has none.
    """
    try:
        found = [entry.path for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    for path in found:
        if path.endswith(".tmp"):
            remove(path)
    return sorted(path for path in found if path.endswith(suffix))


# -- members of records: what stands in a file may be anything ---------------------------------------------------------


def mapping(value: object) -> dict[str, object]:
    """The value, if it is an object of JSON."""
    if not isinstance(value, dict):
        raise ValueError("an object is missing")
    return value


def text(record: dict[str, object], name: str) -> str:
    """A member that must be a text."""
    value = record.get(name)
    if not isinstance(value, str):
        raise ValueError(f"its member {name} is no text")
    return value


def number(record: dict[str, object], name: str) -> float:
    """A member that must be a number."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"its member {name} is no number")
    return value


def texts(record: dict[str, object], name: str) -> dict[str, str]:
    """A member that must be a map of texts; absent is empty."""
    value = record.get(name)
    found = {} if value is None else mapping(value)
    if not all(isinstance(each, str) for each in found.values()):
        raise ValueError(f"its member {name} is no map of texts")
    return {key: str(each) for key, each in found.items()}
