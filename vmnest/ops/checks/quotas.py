"""What the account may have of the service, and how much of that is in use."""

from __future__ import annotations

from ... import errors
from ...wire import names
from . import access, check, places
from .check import Check
from .places import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ...control import Control
    from ...deadline import Deadline
    from .context import Context

__all__ = ["PROBES", "QUOTAS", "Quota"]

_SERVICE_CODE = "lambda"
_MIB_PER_GB = 1024
_FULL, _NEARLY_FULL = 1.0, 0.8
_MOST_VERSIONS = 20  # that are asked for their size
_HIGHER = "End what nobody needs, or ask AWS for a higher quota (Service Quotas, AWS Lambda)."


class Quota:
    """One of the service's quotas: its code, and AWS's published default (as of September 2026).

    ``special`` is the default in ``SPECIAL_REGIONS``.
    """

    __slots__ = ("code", "default", "name", "special", "unit")

    def __init__(self, name: str, code: str, default: float, unit: str, *, special: float | None = None) -> None:
        self.name = name
        self.code = code
        self.default = default
        self.unit = unit
        self.special = default if special is None else special


SPECIAL_REGIONS = ("us-east-1", "us-east-2", "us-west-2", "ap-northeast-1")
_MEMORY, _IMAGES = "memory", "images"
QUOTAS = (
    Quota(_MEMORY, "L-CD1C0CC4", 400, "GB", special=1024),
    Quota("max_duration", "L-B430C318", 8, "h"),
    Quota(_IMAGES, "L-942E56BE", 100, ""),
    Quota("versions_per_image", "L-F8BECE9C", 50, ""),
    Quota("concurrent_builds", "L-72E0D058", 5, "", special=10),
    Quota("run_rate", "L-535CA9B6", 5, "/s"),
    Quota("run_burst", "L-91B95582", 5, ""),
    Quota("resume_rate", "L-118C44B3", 5, "/s"),
    Quota("resume_burst", "L-25EEC0A4", 5, ""),
    Quota("suspend_rate", "L-90045317", 2, "/s"),
    Quota("suspend_burst", "L-139F9A48", 2, ""),
    Quota("terminate_rate", "L-74787B8A", 10, "/s"),
    Quota("terminate_burst", "L-2CCA0501", 10, ""),
    Quota("get_rate", "L-CE98C9E3", 100, "/s"),
    Quota("get_burst", "L-C9C2110E", 100, ""),
    Quota("auth_token_rate", "L-7712260B", 50, "/s"),
    Quota("auth_token_burst", "L-D65D9F16", 50, ""),
    Quota("shell_auth_token_rate", "L-B78D2ECC", 5, "/s"),
    Quota("shell_auth_token_burst", "L-9A5E43A5", 5, ""),
)
_SHOWN = ("run_rate", "resume_rate", "suspend_rate", "concurrent_builds", "max_duration")


class _Limits:
    """The values of all quotas. ``applied`` are those of the account; ``failure`` is why there are none, if so."""

    __slots__ = ("applied", "failure", "values")

    def __init__(
        self, values: Mapping[str, float], *, applied: frozenset[str], failure: errors.VmnestError | None
    ) -> None:
        self.values = values
        self.applied = applied
        self.failure = failure

    def source(self, name: str) -> str:
        """Where the value of a quota is from."""
        return "of this account" if name in self.applied else "AWS's published default"


def _limits(context: Context) -> _Limits:
    def read() -> _Limits:
        where = access.region(context)
        is_special = not isinstance(where, errors.VmnestError) and where.name in SPECIAL_REGIONS
        values = {quota.name: quota.special if is_special else quota.default for quota in QUOTAS}
        told = access.attempt(lambda: dict(_read_applied(context)))
        if isinstance(told, errors.VmnestError):
            return _Limits(values, applied=frozenset(), failure=told)
        return _Limits({**values, **told}, applied=frozenset(told), failure=None)

    return context.once("aws.limits", read)


def _read_applied(context: Context) -> Iterator[tuple[str, float]]:
    """The quotas that Service Quotas tells of."""
    known = {quota.code: quota.name for quota in QUOTAS}
    service = access.require(access.service(context, "service-quotas"))
    params = {"ServiceCode": _SERVICE_CODE, "MaxResults": 100}
    for item in service.pages("ListServiceQuotas", params, deadline=access.deadline(context), items="Quotas"):
        name, value = known.get(str(item.get("QuotaCode"))), item.get("Value")
        if name is not None and isinstance(value, (int, float)):
            yield name, float(value)


# -- memory ------------------------------------------------------------------------------------------------------------


def memory(context: Context) -> list[Check]:
    """The memory of all MicroVMs of the account, suspended ones included."""
    name, title = "aws.quota.memory", "memory quota"
    reason, control = access.obstacle(context), access.control(context)
    if reason is not None or isinstance(control, errors.VmnestError):
        return [access.skipped(name, title=title, reason=reason or access.UNREACHABLE)]
    limits = _limits(context)
    limit = limits.values[_MEMORY]
    used = _count_memory(control, access.deadline(context))
    data = {"limit_gb": limit, "is_default": _MEMORY not in limits.applied, **used.to_wire()}
    source = limits.source(_MEMORY)
    if used.failure is not None and not used.microvms:
        text = f"{limit:g} GB ({source}); what is in use could not be found out: {used.failure.message}"
        return [check.Check(name, title=title, verdict=check.UNKNOWN, detail=text, remedy=used.failure.hint, data=data)]
    text = f"{used} of {limit:g} GB ({source})"
    verdict = check.OK
    if used.gb >= _FULL * limit:
        # A default may not be what this account has.
        verdict = check.FAILED if _MEMORY in limits.applied else check.WARNING
    elif used.gb >= _NEARLY_FULL * limit:
        verdict = check.WARNING
    remedy = None
    if verdict != check.OK:
        remedy = f"vmnest ls --all shows what runs; suspended ones count, too.\n{_HIGHER}"
    elif _MEMORY not in limits.applied:
        text += "; accounts that are new have less"
    return [check.Check(name, title=title, verdict=verdict, detail=text, remedy=remedy, data=data)]


class _Used:
    """Memory in use. ``failure`` cut the counting short."""

    __slots__ = ("failure", "mib", "microvms", "unknown_versions")

    def __init__(self) -> None:
        self.mib = 0
        self.microvms = 0
        self.unknown_versions = 0
        self.failure: errors.VmnestError | None = None

    def __str__(self) -> str:
        least = "at least " if self.failure is not None else ""
        return f"{least}{self.gb:g} GB in use by {self.microvms} MicroVM{'' if self.microvms == 1 else 's'}"

    @property
    def gb(self) -> float:
        return round(self.mib / _MIB_PER_GB, 2)

    def to_wire(self) -> dict[str, object]:
        return {
            "used_gb": self.gb,
            "microvms": self.microvms,
            "is_complete": self.failure is None,
            "of_assumed_size": self.unknown_versions,
        }


def _count_memory(control: Control, deadline: Deadline) -> _Used:
    from ...sandbox.launch import BASE_MEMORY_MIB

    used = _Used()
    running: dict[tuple[str, str], int] = {}
    try:
        for each in control.microvms.list(deadline=deadline):
            if each.state not in names.ENDED_STATES:
                place = each.image_arn, each.image_version
                running[place] = running.get(place, 0) + 1
    except errors.VmnestError as error:
        used.failure = error
    for number, ((image, version), count) in enumerate(running.items()):
        size = _size(control, image, version, deadline) if number < _MOST_VERSIONS else None
        used.microvms += count
        used.mib += count * (size or BASE_MEMORY_MIB)
        used.unknown_versions += 0 if size else count
    return used


def _size(control: Control, image: str, version: str, deadline: Deadline) -> int | None:
    found = access.attempt(lambda: control.images.version(image, version, deadline=deadline))
    return None if isinstance(found, errors.VmnestError) else found.memory_mib


# -- the rest ----------------------------------------------------------------------------------------------------------


def images(context: Context) -> list[Check]:
    """The number of images."""
    name, title = "aws.quota.images", "image quota"
    reason, control = access.obstacle(context), access.control(context)
    if reason is not None or isinstance(control, errors.VmnestError):
        return [access.skipped(name, title=title, reason=reason or access.UNREACHABLE)]
    limits = _limits(context)
    limit = limits.values[_IMAGES]
    found = access.attempt(lambda: sum(1 for _ in control.images.list(deadline=access.deadline(context))))
    if isinstance(found, errors.VmnestError):
        return [access.of_error(name, found, title=title, verdict=check.UNKNOWN, data={"limit": limit})]
    findings = []
    text = f"{found} of {limit:g} ({limits.source(_IMAGES)})"
    if found >= _NEARLY_FULL * limit:
        remedy = "Remove images that nobody needs (vmnest image prune), or ask AWS for a higher quota."
        findings.append(Finding(check.WARNING, text, remedy=remedy))
    data = {"limit": limit, "used": found, "is_default": _IMAGES not in limits.applied}
    return [places.combine(name, title=title, fine=text, findings=findings, data=data)]


def rates(context: Context) -> list[Check]:
    """How often things may be done, and for how long: nothing here can be wrong, but it explains refusals."""
    name, title = "aws.quota.rates", "rates"
    reason = access.obstacle(context)
    if reason is not None:
        return [access.skipped(name, title=title, reason=reason)]
    limits = _limits(context)
    units = {quota.name: quota.unit for quota in QUOTAS}
    shown = ", ".join(f"{each.replace('_', ' ')} {limits.values[each]:g}{units[each]}" for each in _SHOWN)
    codes = {quota.name: quota.code for quota in QUOTAS}
    data = {
        each: {"value": value, "code": codes[each], "is_default": each not in limits.applied}
        for each, value in limits.values.items()
    }
    text = shown
    if isinstance(limits.failure, errors.AccessDeniedError):
        text += " (AWS's published defaults: servicequotas:ListServiceQuotas is not allowed)"
    elif limits.failure is not None:
        text += " (AWS's published defaults: Service Quotas does not answer)"
    return [check.Check(name, title=title, verdict=check.OK, detail=text, data=data)]


PROBES = (memory, images, rates)
