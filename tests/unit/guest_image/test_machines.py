"""Programs and wheels for the other processor are told by their first bytes or their names; scripts are for any."""

import struct

import pytest

from vmnest.guest_image import machines


def elf(machine: int, *, order: str = "<") -> bytes:
    head = b"\x7fELF\x02" + (b"\x01" if order == "<" else b"\x02") + b"\x01" + bytes(9)
    return head + struct.pack(f"{order}HH", 2, machine)


@pytest.mark.parametrize(
    ("name", "start", "machine"),
    [
        ("bin/tool", elf(62), "X86_64"),
        ("bin/tool", elf(183), "ARM_64"),
        ("bin/tool", elf(3), "x86"),
        ("bin/tool", elf(62, order=">"), "X86_64"),
        ("bin/tool", elf(243), None),
        ("bin/tool", b"\x7fELF", None),
        ("bin/tool", b"#!/bin/sh\n", None),
        ("w/numpy-2.0-cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", b"PK", "X86_64"),
        ("w/numpy-2.0-cp312-cp312-manylinux_2_17_aarch64.whl", b"PK", "ARM_64"),
        ("w/six-1.16-py2.py3-none-any.whl", b"PK", None),
        ("empty", b"", None),
    ],
)
def test_the_machine_is_read_from_the_start_or_the_name(name, start, machine):
    assert machines.machine_of(name, start) == machine
