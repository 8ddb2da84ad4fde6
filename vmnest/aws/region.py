"""Which region: flag, ``AGENT_SANDBOX_REGION``, the region in the ARN in use, AWS's own settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from .. import errors, settings
from . import profiles

__all__ = ["Found", "find", "of_arn", "resolve"]

# A region becomes a part of a host name: nothing but a label may pass.
_REGION = re.compile(r"(?![0-9]+\Z)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?")
_AWS_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")


class Found(NamedTuple):
    """A region, and where it is from: ``flag``, ``environment NAME``, ``the ARN …``, ``profile NAME``."""

    name: str
    source: str


def resolve(
    *, flag: str | None = None, arn: str | None = None, environ: Mapping[str, str], profile: str | None = None
) -> str:
    """The region to work in, by the order of ``find``; errors as of that."""
    return find(flag=flag, arn=arn, environ=environ, profile=profile).name


def find(
    *, flag: str | None = None, arn: str | None = None, environ: Mapping[str, str], profile: str | None = None
) -> Found:
    """The region to work in, with its source.

    Order: ``flag``, ``AGENT_SANDBOX_REGION``, the region that ``arn`` names, ``AWS_REGION``, ``AWS_DEFAULT_REGION``,
    the profile's ``region``.

    Raises:
        errors.RegionNotFoundError: none of them says.
        errors.SettingError: the first that says does not name a region.
    """
    ours = settings.resolve("region", flag=flag or None, environ=environ)
    if ours.value:
        return _check(str(ours.value), ours.source)
    if arn is not None and of_arn(arn):
        return _check(of_arn(arn), f"the ARN {arn}")
    for name in _AWS_VARIABLES:
        if environ.get(name):
            return _check(environ[name], f"environment {name}")
    found = profiles.load(environ=environ, profile=profile)
    if found.get("region"):
        return _check(found.get("region"), f"profile {found.name}")
    raise errors.RegionNotFoundError(
        f"no AWS region: not in AGENT_SANDBOX_REGION, {', '.join(_AWS_VARIABLES)} or profile {found.name}",
        hint="Pass --region (Python: region), or set AGENT_SANDBOX_REGION. "
        "On this machine (--local, Python: local=True) none is needed.",
    )


def of_arn(arn: str) -> str:
    """The region that an ARN names, empty if it names none."""
    parts = arn.split(":", 5)
    return parts[3] if len(parts) == 6 and parts[0] == "arn" else ""


def _check(region: str, source: str) -> Found:
    if not _REGION.fullmatch(region):
        named_by = "--region (Python: region)" if source == "flag" else source
        raise errors.SettingError(f"{named_by} names no AWS region: {region!r}", hint="A region looks like us-east-1.")
    return Found(region, source)
