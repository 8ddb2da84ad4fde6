"""What vmnest itself needs of this machine, whichever the target. Nothing here imports what it looks for."""

from __future__ import annotations

import os
import sys

from ... import __version__, errors, settings
from . import check, places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .check import Check
    from .context import Context

__all__ = ["DEPENDENCIES", "OLDEST_PYTHON", "PROBES", "missing"]

OLDEST_PYTHON = (3, 10)
# distribution, module, oldest version, what does not work without it, whether everything stops
DEPENDENCIES = (
    ("botocore", "botocore", "1.43.35", "nothing works", True),
    ("urllib3", "urllib3", "1.26.18", "nothing works", True),
    ("PyYAML", "yaml", "6.0", "vmnest infra cannot read sandbox.yaml", False),
)
# Parts of the standard library that some builds of Python lack.
_PARTS = ("ssl", "zlib")
_OUR_PREFIX = "AGENT_SANDBOX_"


def python(context: Context) -> list[Check]:
    """The interpreter."""
    version = sys.version.split()[0]
    missing = [name for name in _PARTS if not _exists(f"_{name}" if name == "ssl" else name)]
    findings = []
    if sys.version_info < OLDEST_PYTHON:
        text = f"Python {version} is too old"
        findings.append(places.Finding(check.FAILED, text, remedy="Run vmnest with Python 3.10 or newer."))
    if missing:
        text = f"this Python ({sys.executable}) was built without {', '.join(missing)}"
        findings.append(places.Finding(check.FAILED, text, remedy="Use the Python of your system, or of python.org."))
    data = {"version": version, "executable": sys.executable, "implementation": sys.implementation.name}
    fine = f"{version}, {sys.executable}"
    return [places.combine("host.python", title="Python", fine=fine, findings=findings, data=data)]


def system(context: Context) -> list[Check]:
    """The operating system. Any will do; what local sandboxes need is another matter."""
    import platform

    name, release, machine = platform.system(), platform.release(), platform.machine()
    detail = f"{name} {release}, {machine}"
    data = {"system": name, "release": release, "machine": machine}
    return [check.Check("host.system", title="system", verdict=check.OK, detail=detail, data=data)]


def program(context: Context) -> list[Check]:
    """This copy of vmnest."""
    place = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    data = {"version": __version__, "path": place}
    detail = f"{__version__}, in {place}"
    return [check.Check("host.vmnest", title="vmnest", verdict=check.OK, detail=detail, data=data)]


def dependencies(context: Context) -> list[Check]:
    """The libraries that vmnest needs."""
    return [_look_for(row) for row in DEPENDENCIES]


def missing(error: BaseException) -> errors.DependencyMissingError | None:
    """The error to tell in place of this one, if what failed is the import of a library that vmnest needs."""
    name = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
    for distribution, module, oldest, _, _ in DEPENDENCIES:
        if module == name.partition(".")[0]:
            text = f"{distribution} is not installed, which this needs"
            return errors.DependencyMissingError(text, hint=f"Install it: {_install(distribution, oldest)}")
    return None


def _install(distribution: str, oldest: str) -> str:
    return f"{sys.executable or 'python3'} -m pip install '{distribution}>={oldest}'"


def _look_for(row: tuple[str, str, str, str, bool]) -> Check:
    distribution, module, oldest, loss, is_vital = row
    place = _find(module)
    version = _version(distribution) if place else None
    text = None
    if place is None:
        text = f"not installed: {loss} without it"
    elif version is not None and _numbers(version) < _numbers(oldest):
        text = f"{version} is installed, and {oldest} or newer is needed"
    remedy = _install(distribution, oldest)
    findings = [places.Finding(check.FAILED if is_vital else check.WARNING, text, remedy=remedy)] if text else []
    return places.combine(
        f"host.{distribution.lower()}",
        title=distribution,
        fine=f"{version or 'version unknown'}, in {place}",
        findings=findings,
        data={"version": version, "needed": oldest, "path": place},
    )


def _exists(module: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(module) is not None


def _find(module: str) -> str | None:
    """The folder of a package, or None if there is no such package (a mere folder of its name is none)."""
    import importlib.util

    found = importlib.util.find_spec(module)
    if found is None or found.origin is None or not found.submodule_search_locations:
        return None
    return os.path.dirname(os.path.abspath(found.submodule_search_locations[0]))


def _version(distribution: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:  # a copy without a record, as in a vendored tree or a zip
        return None


def _numbers(version: str) -> list[int]:
    """``1.43.35`` as numbers; what follows them (``rc1``) does not count."""
    import re

    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3]]


def variables(context: Context) -> list[Check]:
    """The settings in the environment: those of local sandboxes are looked at with these."""
    findings = []
    known = {row.env: row for row in settings.SETTINGS.values()}
    present = sorted(name for name, value in context.environ.items() if name.startswith(_OUR_PREFIX) and value)
    for name in present:
        if name not in known:
            findings.append(_unknown(name, among=list(known)))
        elif not known[name].name.startswith("local_"):
            findings += _parse(known[name], context)
    fine = f"{', '.join(present)} set" if present else f"no {_OUR_PREFIX}* variable is set"
    return [
        places.combine("host.settings", title="settings", fine=fine, findings=findings, data={"variables": present})
    ]


def _parse(row: settings.Setting, context: Context) -> list[places.Finding]:
    try:
        settings.resolve(row.name, environ=context.environ)
    except errors.SettingError as error:
        # The settings of the MCP server have no meaning for anything else.
        verdict = check.WARNING if row.name.startswith("mcp_") else check.FAILED
        return [places.Finding(verdict, error.message, remedy=error.hint)]
    return []


def _unknown(name: str, *, among: list[str]) -> places.Finding:
    from difflib import get_close_matches

    close = get_close_matches(name, among, n=1)
    remedy = f"Did you mean {close[0]}?" if close else f"unset {name}"
    return places.Finding(check.WARNING, f"{name} is set, and vmnest knows no such variable", remedy=remedy)


PROBES = (python, system, program, dependencies, variables)
