"""What differs between an image's version and what is wanted of it. Pure.

The service fills in what was not sent, and echoes numbers of its own making (``1`` is answered as ``1.0``): what was
not asked for is not compared, and versions are compared as numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...control.image_specs import DEFAULT_MEMORY_MIB, ImageSpec
from ...control.images import ImageVersion
from ...guest_image import publishing
from ...wire import names
from ..steps import Change

_DISABLED = "DISABLED"
_HOOKS = ("microvmImageHooks", "microvmHooks")
_ABSENT = (None, _DISABLED)
_SECONDS = "TimeoutInSeconds"
_OUR_KEY = re.compile(rf"/{re.escape(publishing.KEY_PREFIX)}[^/]+/([0-9a-f]{{12}})[0-9a-f]{{52}}\.zip$")


def find(version: ImageVersion, spec: ImageSpec, *, is_base_wanted: bool = False) -> tuple[Change, ...]:
    """What would be otherwise in a new version.

    Args:
        version: The one to compare with.
        spec: What is wanted.
        is_base_wanted: The user wants that base image; else it is only what a new version would be built on.
    """
    return tuple(_find(version, spec, is_base_wanted=is_base_wanted))


def newest_of(versions: Iterable[ImageVersion]) -> ImageVersion | None:
    """The version with the highest number, whatever became of it."""
    return max(versions, key=_order, default=None)


def _order(version: ImageVersion) -> tuple[int, ...]:
    return tuple(int(part) for part in version.image_version.split(".") if part.isdecimal())


def _find(version: ImageVersion, spec: ImageSpec, *, is_base_wanted: bool) -> Iterator[Change]:
    if version.code_uri != spec.code_uri:
        yield Change("guest", _content(version.code_uri), _content(spec.code_uri))
    if version.build_role_arn != spec.build_role_arn:
        yield Change("build role", version.build_role_arn, spec.build_role_arn)
    if is_base_wanted and version.base_image_arn != spec.base_image_arn:
        yield Change("base image", version.base_image_arn, spec.base_image_arn)
    if spec.base_image_version and _number(version.base_image_version) != _number(spec.base_image_version):
        yield Change("base image version", version.base_image_version, spec.base_image_version)
    memory, wanted = version.memory_mib or DEFAULT_MEMORY_MIB, spec.memory_mib or DEFAULT_MEMORY_MIB
    if memory != wanted:
        yield Change("memory", f"{memory} MiB", f"{wanted} MiB")
    yield from _find_variables(version.environment, spec.environment)
    yield from _find_hooks(version.hooks, spec.hooks.to_wire() if spec.hooks else {})
    if version.has_all_capabilities != spec.has_all_capabilities:
        yield Change("capabilities", _capabilities(version), _capabilities(spec))
    if version.log_group != spec.log_group:
        yield Change("log group", version.log_group, spec.log_group)
    if _connectors(version.egress_connectors) != _connectors(spec.egress_connectors):
        yield Change("egress", ", ".join(version.egress_connectors), ", ".join(spec.egress_connectors))


def _content(uri: str | None) -> str | None:
    """The zip, for people: of one of ours the beginning of the digest in its key."""
    if uri is None:
        return None
    ours = _OUR_KEY.search(uri)
    return ours.group(1) if ours else uri


def _number(version: str | None) -> tuple[int, ...] | str | None:
    """``1`` and ``1.0`` are one version."""
    if version is None:
        return None
    parts = version.split(".")
    if not all(part.isdecimal() for part in parts):
        return version
    numbers = [int(part) for part in parts]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _find_variables(present: Mapping[str, str], wanted: Mapping[str, str]) -> Iterator[Change]:
    """Names only: values may be secret."""
    for name in sorted({*present, *wanted}):
        if present.get(name) != wanted.get(name):
            old, new = name in present, name in wanted
            is_other = old and new
            yield Change(
                f"variable {name}", "set" if old else None, ("another value" if is_other else "set") if new else None
            )


def _find_hooks(present: Mapping[str, object], wanted: Mapping[str, object]) -> Iterator[Change]:
    before, after = _enabled_hooks(present), _enabled_hooks(wanted)
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield Change(f"hook {name}", before.get(name), after.get(name))


def _enabled_hooks(hooks: Mapping[str, object]) -> dict[str, str]:
    """Hook → its timeout, of those that are on, and the port if one is."""
    found: dict[str, str] = {}
    for group in _HOOKS:
        members = hooks.get(group)
        if not isinstance(members, Mapping):
            continue
        for hook, mode in members.items():
            if not str(hook).endswith(_SECONDS) and mode not in _ABSENT:
                seconds = members.get(f"{hook}{_SECONDS}")
                found[str(hook)] = "on" if seconds is None else f"{seconds} s"
    if found and hooks.get("port") is not None:
        found["port"] = str(hooks["port"])
    return found


def _capabilities(of: ImageVersion | ImageSpec) -> str | None:
    return "ALL" if of.has_all_capabilities else None


def _connectors(arns: Sequence[str]) -> tuple[str, ...]:
    """Nothing given is the internet, and is answered so."""
    return tuple(arn for arn in arns if not arn.endswith(f":{names.INTERNET_EGRESS}"))
