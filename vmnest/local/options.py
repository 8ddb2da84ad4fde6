"""What a caller asks of a local VM and AWS has no member for: the header ``vmnest-local-options``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from ..wire import names
from . import faults

DEFAULT_MEMORY_MIB = 2048
_MIN_MEMORY_MIB = 32
_MAX_MEMORY_MIB = 1 << 24
_MAX_CPUS = 4096


@dataclass(frozen=True)
class Options:
    """``cpus`` (None: all of them) and ``memory_mib``."""

    cpus: float | None = None
    memory_mib: int = DEFAULT_MEMORY_MIB

    def to_wire(self) -> dict[str, object]:
        """As members of ``localDetails``."""
        return {"cpus": self.cpus, "memory": self.memory_mib}


def parse_options(text: str | None, *, memory_mib: int = DEFAULT_MEMORY_MIB) -> Options:
    """The options in the header's value; ``memory_mib`` is the image's, for who does not ask for memory.

    Raises:
        faults.Fault: it is no JSON object of known members with sensible values.
    """
    if text is None:
        return Options(memory_mib=memory_mib)
    try:
        fields = json.loads(text)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise faults.validation(f"{names.LOCAL_OPTIONS_HEADER} must be a JSON object")
    unknown = sorted(set(fields) - {"cpus", "memory", "egress_allow"})
    if unknown:
        raise faults.validation(f"{names.LOCAL_OPTIONS_HEADER} has unknown members: {', '.join(unknown)}")
    if fields.get("egress_allow"):
        raise faults.validation("This local cloud gives no MicroVM access to the network: egress_allow must be empty.")
    return Options(cpus=_cpus(fields), memory_mib=_memory(fields, memory_mib))


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
