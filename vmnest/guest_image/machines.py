"""For which kind of processor a program is: read from the first bytes of a file, or from the name of a wheel."""

from __future__ import annotations

import re
import struct

__all__ = ["ARM", "X86", "machine_of"]

ARM = "ARM_64"
X86 = "X86_64"

# e_machine of the ELF header: EM_386, EM_X86_64, EM_AARCH64 (the System V ABI, chapter 4).
_ELF_MACHINES = {3: "x86", 62: X86, 183: ARM}
_WHEEL = re.compile(r"-[a-z0-9_.]*(x86_64|amd64|aarch64|arm64|i686)\.whl\Z", re.IGNORECASE)
_WHEEL_MACHINES = {"x86_64": X86, "amd64": X86, "aarch64": ARM, "arm64": ARM, "i686": "x86"}


def machine_of(name: str, start: bytes) -> str | None:
    """ARM_64, X86_64, x86, or None for what runs anywhere or nowhere."""
    if start[:4] == b"\x7fELF" and len(start) >= 20:
        order = ">" if start[5] == 2 else "<"
        machine: int = struct.unpack_from(f"{order}H", start, 18)[0]
        return _ELF_MACHINES.get(machine)
    match = _WHEEL.search(name)
    return _WHEEL_MACHINES[match[1].lower()] if match else None
