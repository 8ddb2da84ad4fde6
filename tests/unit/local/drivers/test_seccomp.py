"""The seccomp filter, run on paper: a small machine executes the program for calls of both architectures."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest.local.drivers import seccomp

ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386 = 0x40000003
ARM = 0x40000028
ALLOW = "allow"
KILL = "kill"
machines = pytest.mark.parametrize("machine", ["x86_64", "aarch64"])


def execute(program: bytes, data: bytes) -> str:
    """What the kernel would do: the subset of classic BPF that the program uses."""
    code = list(struct.iter_unpack("<HBBI", program))
    accumulator, at = 0, 0
    while True:
        operation, yes, no, value = code[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == 0x06:
            return {0x7FFF0000: ALLOW, 0x80000000: KILL}.get(value) or f"errno {value & 0xFFFF}"
        else:
            met = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[operation]
            at += yes if met else no


def answer(machine: str, number: int, *arguments: int, arch: int | None = None) -> str:
    words = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<iIQ6Q", number, arch if arch is not None else ARCHES[machine], 0, *words)
    return execute(seccomp.build_filter(machine), data)


@machines
def test_a_program_may_choose_its_cpus_unless_they_are_its_share(machine: str) -> None:
    data = struct.pack("<iIQ6Q", number(machine, "sched_setaffinity"), ARCHES[machine], 0, *[0] * 6)
    assert execute(seccomp.build_filter(machine), data) == ALLOW
    assert execute(seccomp.build_filter(machine, pinned=True), data) == "errno 1"


def number(machine: str, name: str) -> int:
    found = {**seccomp.REFUSED, **seccomp._SPECIAL}[name][list(ARCHES).index(machine)]
    assert found is not None
    return found


@machines
def test_an_ordinary_call_is_allowed(machine: str) -> None:
    assert answer(machine, {"x86_64": 1, "aarch64": 64}[machine]) == ALLOW


@machines
def test_every_refused_call_answers_eperm(machine: str) -> None:
    column = list(ARCHES).index(machine)
    for name, numbers in seccomp.REFUSED.items():
        if numbers[column] is not None:
            assert answer(machine, number(machine, name)) == "errno 1", name


@machines
def test_clone3_is_said_to_be_missing(machine: str) -> None:
    assert answer(machine, number(machine, "clone3")) == "errno 38"


@machines
@pytest.mark.parametrize("family", [1, 2, 10])
def test_plain_families_are_allowed(machine: str, family: int) -> None:
    for name in ("socket", "socketpair"):
        assert answer(machine, number(machine, name), family, 1, 6) == ALLOW


@machines
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_any_other_family_does_not_exist(machine: str, family: int, protocol: int) -> None:
    if family not in (1, 2, 10) and (family, protocol) != (16, 0):
        assert answer(machine, number(machine, "socket"), family, 1, protocol) == "errno 97"


@machines
def test_of_netlink_only_routes_are_allowed(machine: str) -> None:
    assert answer(machine, number(machine, "socket"), 16, 3, 0) == ALLOW
    assert answer(machine, number(machine, "socket"), 16, 3, 9) == "errno 97"


@machines
@given(st.integers(0, 2**32 - 1))
def test_the_upper_half_of_an_argument_does_not_change_the_answer(machine: str, upper: int) -> None:
    """The kernel takes these arguments as int: what stands above is cut there too."""
    assert answer(machine, number(machine, "socket"), upper << 32 | 40, 1, 0) == "errno 97"
    assert answer(machine, number(machine, "clone"), upper << 32 | 0x10000000) == "errno 1"


@machines
@given(st.integers(0, 2**32 - 1))
def test_clone_is_refused_just_with_a_namespace_flag(machine: str, flags: int) -> None:
    expected = "errno 1" if flags & 0x7E020000 else ALLOW
    assert answer(machine, number(machine, "clone"), flags) == expected


@machines
@given(st.integers(0, 2**32 - 1))
def test_another_architecture_kills(machine: str, arch: int) -> None:
    if arch != ARCHES[machine]:
        assert answer(machine, 1, arch=arch) == KILL
    for foreign in (I386, ARM):
        assert answer(machine, 20, arch=foreign) == KILL


def test_the_x32_door_kills() -> None:
    for low in (0, 39, 56, 520):
        assert answer("x86_64", 0x40000000 + low) == KILL


@machines
@given(st.integers(0, 600))
def test_only_what_is_named_is_refused(machine: str, call: int) -> None:
    column = list(ARCHES).index(machine)
    named = {numbers[column] for numbers in (*seccomp.REFUSED.values(), *seccomp._SPECIAL.values())}
    if call not in named:
        assert answer(machine, call) == ALLOW


def test_numbers_are_not_used_twice() -> None:
    for column in (0, 1):
        numbers = [row[column] for row in (*seccomp.REFUSED.values(), *seccomp._SPECIAL.values())]
        present = [found for found in numbers if found is not None]
        assert len(present) == len(set(present))


def test_an_unknown_machine_is_an_error() -> None:
    with pytest.raises(KeyError):
        seccomp.build_filter("riscv64")
