"""The seccomp filter of a sandbox, as a classic BPF program. Pure: a machine's name goes in, bytes come out.

Stand-alone (see ``runtime``). What it is for: the kernel's rare and risky doors stay shut even for a program that
finds a hole in the other walls, and families of sockets that no network namespace holds back (vsock) do not exist.

The program, in order: another ABI than the machine's own kills the process (the numbers below would mean other
calls); ``clone3`` answers ENOSYS, so that libc falls back to ``clone``, whose flags a filter can read; the calls of
REFUSED answer EPERM; ``clone`` with a namespace flag EPERM; ``socket`` outside the allowed families EAFNOSUPPORT.
Where CPUs are allotted by affinity alone, ``sched_setaffinity`` answers EPERM as well. Everything else is allowed.
Arguments are ints to the kernel: only their lower halves are compared.
"""

from __future__ import annotations

import struct

EPERM = 1
ENOSYS = 38
EAFNOSUPPORT = 97

_KILL = 0x80000000
_ERRNO = 0x00050000
_ALLOW = 0x7FFF0000

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JEQ = 0x15
_JGE = 0x35
_JSET = 0x45
_RETURN = 0x06

_AT_NUMBER = 0
_AT_ARCH = 4
_AT_ARGUMENT = (16, 24, 32)  # lower halves; both machines are little-endian

_NAMESPACE_FLAGS = 0x7E020000  # NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_X32_BIT = 0x40000000

_AF_UNIX = 1
_AF_INET = 2
_AF_INET6 = 10
_AF_NETLINK = 16
_NETLINK_ROUTE = 0

_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_FIELDS = ("x86_64", "aarch64")

# name -> numbers on _FIELDS; None: the machine has no such call
_SPECIAL = {
    "clone": (56, 220),
    "clone3": (435, 435),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "sched_setaffinity": (203, 122),
}
REFUSED: dict[str, tuple[int | None, int | None]] = {
    # namespaces and mounts
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    # large and young parts of the kernel
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "fanotify_init": (300, 262),
    # keys
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # the machine itself
    "acct": (163, 89),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "settimeofday": (164, 170),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "init_module": (175, 105),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "uselib": (134, None),
    "vhangup": (153, 58),
}


def build_filter(machine: str, *, pinned: bool = False) -> bytes:
    """The program for a machine (``os.uname().machine``); KeyError for one that is not supported.

    ``pinned``: whether a process must stay on the CPUs that it has.
    """
    column = _FIELDS.index(machine) if machine in _ARCHES else -1
    code = [_op(_LOAD, _AT_ARCH), _op(_JEQ, _ARCHES[machine], yes=1), _op(_RETURN, _KILL), _op(_LOAD, _AT_NUMBER)]
    if machine == "x86_64":
        code += [_op(_JGE, _X32_BIT, no=1), _op(_RETURN, _KILL)]
    code += _answer(_SPECIAL["clone3"][column], ENOSYS)
    for numbers in REFUSED.values():
        if (number := numbers[column]) is not None:
            code += _answer(number, EPERM)
    if pinned:
        code += _answer(_SPECIAL["sched_setaffinity"][column], EPERM)
    code += _guard(_SPECIAL["clone"][column], _clone_rules())
    for name in ("socket", "socketpair"):
        code += _guard(_SPECIAL[name][column], _socket_rules())
    code.append(_op(_RETURN, _ALLOW))
    return b"".join(code)


def _op(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


def _answer(number: int, errno: int) -> list[bytes]:
    return [_op(_JEQ, number, no=1), _op(_RETURN, _ERRNO | errno)]


def _guard(number: int, rules: list[bytes]) -> list[bytes]:
    """``rules`` for one call: they end in a return, so nothing after them sees their loads."""
    return [_op(_JEQ, number, no=len(rules)), *rules]


def _clone_rules() -> list[bytes]:
    return [
        _op(_LOAD, _AT_ARGUMENT[0]),
        _op(_JSET, _NAMESPACE_FLAGS, no=1),
        _op(_RETURN, _ERRNO | EPERM),
        _op(_RETURN, _ALLOW),
    ]


def _socket_rules() -> list[bytes]:
    return [
        _op(_LOAD, _AT_ARGUMENT[0]),
        _op(_JEQ, _AF_UNIX, yes=5),
        _op(_JEQ, _AF_INET, yes=4),
        _op(_JEQ, _AF_INET6, yes=3),
        _op(_JEQ, _AF_NETLINK, no=3),
        _op(_LOAD, _AT_ARGUMENT[2]),
        _op(_JEQ, _NETLINK_ROUTE, no=1),
        _op(_RETURN, _ALLOW),
        _op(_RETURN, _ERRNO | EAFNOSUPPORT),
    ]
