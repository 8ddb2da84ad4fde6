#!/usr/bin/env python3
"""Copies vmnest, guest included, into another project; or makes one file of it, which Python runs.

    tools/vendor DEST [--name PKG]
    tools/vendor --pyz FILE

``DEST`` is a folder of the other project: the package ``DEST/vmnest`` is made, or ``DEST/PKG``, and replaced if it is
such a copy already. There are no links in it, all its imports are relative, and so it works under any name and
inside any other package; its licence is in it, and in the file VENDORED where it comes from.

``FILE`` is a zip archive with the command line as its program: ``python3 FILE --version``.

Neither has the libraries that vmnest needs (botocore, urllib3, PyYAML): they are those of the Python that runs it.
"""

from __future__ import annotations

import argparse
import compileall
import keyword
import os
import py_compile
import re
import subprocess
import sys
import tempfile
import zipapp
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "vmnest"
NOTE = "VENDORED"
PROGRAM = f"{PACKAGE}.__main__:console"
INTERPRETER = "/usr/bin/env python3"
# What the package is made of, as in setup.cfg.
SUFFIX = ".py"
OTHER_FILES = frozenset({"py.typed", "Dockerfile", ".dockerignore"})


class RefusalError(Exception):
    """What is wanted would do harm, or cannot be done; for the user."""


def read_package() -> dict[str, bytes]:
    """Path in the package → content; what is behind the link to the guest, too."""
    return {str(path.relative_to(ROOT / PACKAGE)): path.read_bytes() for path in sorted(_walk(ROOT / PACKAGE))}


def _walk(folder: Path) -> Iterator[Path]:
    for here, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (Path(here, name) for name in names if name.endswith(SUFFIX) or name in OTHER_FILES)


def read_version(files: Mapping[str, bytes]) -> str:
    """The version, from the text: nothing of the package is run."""
    found = re.search(rb'^__version__ = "([^"]+)"$', files["__init__.py"], re.MULTILINE)
    assert found is not None
    return found[1].decode()


def find_revision() -> str | None:
    """The commit that the checkout is at; None if this is none, or there is no git."""
    if not (ROOT / ".git").exists():  # git would go on and find whatever repository is around
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return done.stdout.strip() or None


def render_note(files: Mapping[str, bytes], *, name: str) -> str:
    """What the copy says of itself."""
    revision = find_revision()
    options = "" if name == PACKAGE else f" --name {name}"
    lines = (
        f"This is a copy of vmnest {read_version(files)}, made by the command: tools/vendor DEST{options}",
        *([f"Revision: {revision}"] if revision else []),
        "License: Apache-2.0, see LICENSE",
        "Change nothing here: the command replaces the whole folder.",
    )
    return "".join(f"{line}\n" for line in lines)


def copy(destination: Path, *, name: str) -> Path:
    """Make the package ``name`` in a folder of another project, or replace the copy that is there.

    Raises:
        RefusalError: the name is none for a package, or something else has it.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name in sys.stdlib_module_names or name.startswith("__"):
        raise RefusalError(f"{name!r} can be no package's name")
    target = destination / name
    if any(target.resolve().is_relative_to((ROOT / source).resolve()) for source in (PACKAGE, "guest")):
        raise RefusalError(f"{destination} is in what is to be copied: choose another DEST")
    if os.path.lexists(target) and (target.is_symlink() or not (target / NOTE).is_file()):
        raise RefusalError(f"{target} is there, and is no copy that tools/vendor made: choose another --name or DEST")
    destination.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=destination) as work:
        fresh, old = Path(work, "new"), Path(work, "old")
        write_copy(fresh, name=name)
        if target.exists():
            target.rename(old)
        fresh.rename(target)
    return target


def write_copy(folder: Path, *, name: str) -> None:
    """Write the package's files, the licence and the note into a new folder."""
    files = read_package()
    note = render_note(files, name=name).encode()
    for place, data in {**files, "LICENSE": (ROOT / "LICENSE").read_bytes(), NOTE: note}.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def make_archive(file: Path) -> Path:
    """Make the one file; what was there is whole until the new one is.

    Raises:
        RefusalError: something that is no file is there.
    """
    file = file.resolve()
    if file.exists() and not file.is_file():
        raise RefusalError(f"{file} is there, and is no file")
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".vmnest-", dir=file.parent) as work:
        tree, archive = Path(work, "tree"), Path(work, "vmnest.pyz")
        write_copy(tree / PACKAGE, name=PACKAGE)
        add_byte_code(tree)
        zipapp.create_archive(tree, archive, interpreter=INTERPRETER, main=PROGRAM, compressed=True)
        archive.chmod(0o755)
        archive.replace(file)
    return file


def add_byte_code(tree: Path) -> None:
    """Beside the sources, for Pythons of this one's version, which start three times as fast; others pass it over."""
    compileall.compile_dir(
        tree,
        quiet=1,
        legacy=True,
        stripdir=tree,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/vendor", description="Copy vmnest into another project.")
    parser.add_argument("destination", metavar="DEST", nargs="?", type=Path, help="folder that the package goes into")
    parser.add_argument("--name", metavar="PKG", default=PACKAGE, help="name of the package there (default: vmnest)")
    parser.add_argument("--pyz", metavar="FILE", type=Path, help="make this one file instead, which Python runs")
    options = parser.parse_args(arguments)
    if (options.destination is None) == (options.pyz is None) or "" in arguments:
        parser.error("name the folder DEST, or --pyz FILE")
    if options.pyz is not None and options.name != PACKAGE:
        parser.error("--name is for copies")
    try:
        made = make_archive(options.pyz) if options.pyz else copy(options.destination, name=options.name)
    except RefusalError as error:
        print(f"tools/vendor: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"tools/vendor: cannot write {options.pyz or options.destination}: {error.strerror}", file=sys.stderr)
        return 1
    print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
