"""The program that copies files into an image: it runs inside a sandbox, whose own links and modes decide.

Stand-alone: its source is handed to the sandbox's interpreter, Python 3.9 or newer, with a JSON object, which is cut
into arguments since none can be of any length::

    {"do": "make", "path": PATH}
    {"do": "copy", "sources": [[NAME, PLACE], …], "target": PATH, "is_folder": …, "mode": … or null, "unpacks": …}
    {"do": "gather", "patterns": [PATTERN, …]}

``copy`` takes its sources from ROOT; ``gather`` puts there, under the number of its pattern, what patterns mean in
the sandbox. What goes wrong is printed; the exit status is 1 then.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import stat
import sys
import tarfile

ROOT = "/.sandbox/context"
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any


class RefusedError(Exception):
    """It cannot be done; the message says why."""


def main(argument: str, *, root: str = ROOT) -> int:
    """Do what the argument asks for; the exit status."""
    request = json.loads(argument)
    try:
        if request["do"] == "make":
            make_folder(request["path"])
        elif request["do"] == "copy":
            copy(request, root)
        else:
            gather(request["patterns"], root)
    except RefusedError as error:
        sys.stdout.write(f"{error}\n")  # the log of the build
        return 1
    except (OSError, tarfile.TarError) as error:
        sys.stdout.write(f"{getattr(error, 'filename', None) or ''}: {getattr(error, 'strerror', None) or error}\n")
        return 1
    return 0


def make_folder(path: str) -> None:
    """Make a directory, and those above it."""
    try:
        os.makedirs(path, exist_ok=True)
    except FileExistsError as error:
        raise RefusedError(f"{path} is there, and no directory") from error


def copy(request: Mapping[str, Any], root: str) -> None:
    """Copy the sources to the target: a directory's content, and files by their names if the target is a directory."""
    target, mode = request["target"], request["mode"]
    for name, place in request["sources"]:
        source = os.path.join(root, place)
        if os.path.isdir(source):
            copy_folder(source, target, mode=mode)
        elif request["unpacks"] and tarfile.is_tarfile(source):
            make_folder(target)
            unpack(source, target)
        else:
            is_inside = request["is_folder"] or os.path.isdir(target)
            path = os.path.join(target, os.path.basename(name)) if is_inside else target
            make_folder(os.path.dirname(path))
            copy_file(source, path, mode=mode)


def copy_folder(source: str, target: str, *, mode: int | None = None) -> None:
    """Copy what is in a directory into another one, which is made if it is not there."""
    is_new = not os.path.isdir(target)
    make_folder(target)
    with os.scandir(source) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = os.path.join(target, entry.name)
            if entry.is_dir(follow_symlinks=False):
                copy_folder(entry.path, path, mode=mode)
            else:
                copy_file(entry.path, path, mode=mode)
    if is_new:  # at last: it may not be writable
        os.chmod(target, stat.S_IMODE(os.stat(source).st_mode) if mode is None else mode)


def copy_file(source: str, path: str, *, mode: int | None = None) -> None:
    """Copy a file or a link, in the place of what is there."""
    status = os.lstat(source)
    if os.path.isdir(path) and not os.path.islink(path):
        raise RefusedError(f"{path} is a directory: no file can take its place")
    if os.path.lexists(path):
        os.unlink(path)
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(source), path)
    elif stat.S_ISREG(status.st_mode):
        shutil.copyfile(source, path)
        os.chmod(path, stat.S_IMODE(status.st_mode) if mode is None else mode)
        os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns))
    else:
        raise RefusedError(f"{source} is no file, directory or link")


def unpack(source: str, target: str) -> None:
    """Unpack an archive, as ``tar -x`` would."""
    with tarfile.open(source) as archive:
        archive.errorlevel = 1
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = staticmethod(tarfile.fully_trusted_filter)  # the sandbox is what protects
        archive.extractall(target)  # noqa: S202


def gather(patterns: Sequence[str], root: str) -> None:
    """Copy what patterns mean here to ``root/<number of the pattern>``."""
    for number, pattern in enumerate(patterns):
        found = sorted(glob.glob(pattern)) or _literal(pattern)
        for path in found:
            real = os.path.realpath(path)
            target = os.path.join(root, str(number), os.path.basename(path.rstrip("/")) or "_")
            make_folder(os.path.dirname(target))
            if os.path.isdir(real):
                copy_folder(real, target)
            else:
                copy_file(real, target)


def _literal(pattern: str) -> Iterable[str]:
    if not os.path.exists(pattern):
        raise RefusedError(f"there is no {pattern}")
    return [pattern]


if __name__ == "__main__":
    sys.exit(main("".join(sys.argv[1:])))
