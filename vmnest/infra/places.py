"""Where a ``sandbox.yaml`` is looked for. Reads none: whoever only asks whether there is one need not load YAML."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from .. import errors, settings

__all__ = ["SETUP_FILES", "find", "find_default"]

SETUP_FILES = ("sandbox.yaml", "setup.yaml")
_SUFFIXES = (".yaml", ".yml")


def find_default(environ: Mapping[str, str], *, cwd: str = os.curdir) -> str | None:
    """The file (or the directory) that is read if none is named; None if there is none."""
    given = settings.text("setup", environ=environ)
    if given:
        return given
    return next((name for name in SETUP_FILES if os.path.isfile(os.path.join(cwd, name))), None)


def find(files: Sequence[str] | None, *, environ: Mapping[str, str], cwd: str = os.curdir) -> list[str]:
    """The files to read, each once, as the user names them: those that are given, else the default.

    Raises:
        errors.ConfigurationError: there is none.
    """
    if not files:
        default = find_default(environ, cwd=cwd)
        if default is None:
            raise errors.ConfigurationError(
                f"there is no {SETUP_FILES[0]} in {os.path.abspath(cwd)}",
                hint="Make one (vmnest infra init), name one with -f, or set AGENT_SANDBOX_SETUP.",
            )
        files = [default]
    found: dict[str, str] = {}
    for given in files:
        for path in _expand(given, cwd=cwd):
            # One that is named twice, by itself and by its directory, is meant once.
            found.setdefault(os.path.realpath(os.path.join(cwd, path)), path)
    return list(found.values())


def _expand(given: str, *, cwd: str) -> list[str]:
    place = os.path.join(cwd, given)
    if "\0" in given:
        raise errors.ConfigurationError(f"no name of a file: {given!r}")
    if not os.path.isdir(place):
        return [given]
    try:
        # Those with a dot in front are of editors and other programs.
        names = sorted(name for name in os.listdir(place) if name.endswith(_SUFFIXES) and not name.startswith("."))
    except OSError as error:
        raise errors.ConfigurationError(f"cannot read the directory {given}: {error.strerror}") from error
    paths = [os.path.join(given, name) for name in names if os.path.isfile(os.path.join(place, name))]
    if not paths:
        raise errors.ConfigurationError(f"there is no .yaml or .yml file in the directory {given}")
    return paths
