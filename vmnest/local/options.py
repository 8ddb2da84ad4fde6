"""What a caller asks of a local VM and AWS has no member for: the header ``vmnest-local-options``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass

from .. import errors
from ..wire import egress, names
from . import faults

DEFAULT_MEMORY_MIB = 2048
_MIN_MEMORY_MIB = 32
_MAX_MEMORY_MIB = 1 << 24
_MAX_CPUS = 4096


@dataclass(frozen=True)
class Options:
    """``cpus`` (None: all of them), ``memory_mib``, and what may be reached: rules of ``wire.egress``."""

    cpus: float | None = None
    memory_mib: int = DEFAULT_MEMORY_MIB
    egress_allow: tuple[str, ...] = ()

    @property
    def rules(self) -> egress.Rules:
        """What may be reached."""
        return egress.parse(self.egress_allow)

    def to_wire(self) -> dict[str, object]:
        """As members of ``localDetails``."""
        return {"cpus": self.cpus, "memory": self.memory_mib, "egress": list(self.egress_allow)}

    @classmethod
    def from_note(cls, members: Mapping[str, object]) -> Options:
        """Of a note that has them as members of JSON.

        Raises:
            ValueError: they make no sense.
        """
        try:
            allowed = members.get("egress_allow", ())
            options = cls(**{**members, "egress_allow": tuple(allowed)})  # type: ignore[arg-type]
            return dataclasses.replace(options, egress_allow=options.rules.texts)
        except (TypeError, errors.UsageError) as error:
            raise ValueError(str(error)) from error


def parse_options(text: str | None, *, memory_mib: int = DEFAULT_MEMORY_MIB) -> Options:
    """The options in the header's value; ``memory_mib`` is the image's, for who does not ask for memory.

    Raises:
        faults.Fault: it is no JSON object of known members with sensible values.
    """
    if text is None:
        return Options(memory_mib=memory_mib)
    fields = _fields(text)
    return Options(cpus=_cpus(fields), memory_mib=_memory(fields, memory_mib), egress_allow=_egress(fields))


def parse_build_egress(text: str | None) -> tuple[str, ...] | None:
    """What RUN steps of a build may reach; None if the header does not say.

    Raises:
        faults.Fault: as by ``parse_options``.
    """
    fields = {} if text is None else _fields(text)
    return None if fields.get("egress_allow") is None else _egress(fields)


def _fields(text: str) -> dict[str, object]:
    try:
        fields = json.loads(text)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise faults.validation(f"{names.LOCAL_OPTIONS_HEADER} must be a JSON object")
    unknown = sorted(set(fields) - {"cpus", "memory", "egress_allow"})
    if unknown:
        raise faults.validation(f"{names.LOCAL_OPTIONS_HEADER} has unknown members: {', '.join(unknown)}")
    return fields


def _cpus(fields: Mapping[str, object]) -> float | None:
    value = fields.get("cpus")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _MAX_CPUS:
        raise faults.validation(f"cpus must be a number above 0, at most {_MAX_CPUS}")
    return float(value)


def _memory(fields: Mapping[str, object], default: int) -> int:
    value = fields.get("memory")
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not _MIN_MEMORY_MIB <= value <= _MAX_MEMORY_MIB:
        raise faults.validation(f"memory must be a whole number of MiB, {_MIN_MEMORY_MIB} to {_MAX_MEMORY_MIB}")
    return value


def _egress(fields: Mapping[str, object]) -> tuple[str, ...]:
    value = fields.get("egress_allow")
    if value is None:
        return ()
    if not isinstance(value, list):
        raise faults.validation("egress_allow must be a list of hosts")
    try:
        return egress.parse(value).texts
    except errors.UsageError as error:
        raise faults.validation(error.message) from error
