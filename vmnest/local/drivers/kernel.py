"""What the kernel is told: by its files, and by the system calls that Python has no name for, with their numbers.

Stand-alone (see ``runtime``). Each call raises OSError. ``syscall`` numbers are per machine; a machine without a row
in MACHINES is not supported.
"""

from __future__ import annotations

import ctypes
import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 0x2

MOUNT_ATTR_RDONLY = 0x1
MOUNT_ATTR_NOSUID = 0x2
MOUNT_ATTR_NODEV = 0x4
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000

_FALLOC_FL_KEEP_SIZE = 0x1
_FALLOC_FL_PUNCH_HOLE = 0x2

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_SECCOMP_MODE_FILTER = 2
_LAST_CAPABILITY_SEARCHED = 63
_CAPABILITY_VERSION_3 = 0x20080522
_KEYCTL_JOIN_SESSION_KEYRING = 1

# machine -> numbers of the calls made here through syscall()
MACHINES = {
    "x86_64": {"capset": 126, "pivot_root": 155, "keyctl": 250, "mount_setattr": 442, "tgkill": 234},
    "aarch64": {"capset": 91, "pivot_root": 41, "keyctl": 219, "mount_setattr": 442, "tgkill": 131},
}

_libc = ctypes.CDLL(None, use_errno=True)


def _call(function: str, *arguments: object, subject: str | None = None) -> int:
    result: int = getattr(_libc, function)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), subject)
    return result


def _syscall(name: str, *arguments: object, subject: str | None = None) -> int:
    # Every argument of the variadic syscall() must have a register's width, or its upper half is whatever was there.
    wide = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    number = MACHINES[os.uname().machine][name]
    return _call("syscall", ctypes.c_long(number), *wide, subject=subject)


def close_all_but(kept: Collection[int]) -> None:
    """Close every descriptor but these. (os.closerange tries a million numbers where libc has no close_range.)"""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError as error:
                if error.errno != errno.EBADF:  # the one that the listing itself used
                    raise


def write(path: str, text: str) -> None:
    """Write to a file that the kernel made; never make one. All of it at once: some it takes in one piece alone."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def unshare(flags: int) -> None:
    """Leave the namespaces that ``flags`` name for new ones."""
    _call("unshare", flags)


def mount(source: str, target: str, kind: str | None = None, *, flags: int = 0, options: str | None = None) -> None:
    """mount(2); paths may be relative, and are better so: mountinfo shows them inside."""
    _call(
        "mount",
        os.fsencode(source),
        os.fsencode(target),
        None if kind is None else kind.encode(),
        ctypes.c_ulong(flags),
        None if options is None else os.fsencode(options),
        subject=target,
    )


def unmount(target: str) -> None:
    """Detach what is mounted there, now, whoever still uses it."""
    _call("umount2", os.fsencode(target), MNT_DETACH, subject=target)


def set_mount_attributes(target: str, attributes: int) -> None:
    """Add attributes to a mount and to every mount below it (a remount would change only the first)."""
    request = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    _syscall(
        "mount_setattr",
        _AT_FDCWD,
        os.fsencode(target),
        _AT_RECURSIVE,
        ctypes.byref(request),
        ctypes.sizeof(request),
        subject=target,
    )


def punch(descriptor: int, *, start: int, length: int) -> None:
    """Give back that part of a file; it reads as zeros, and nothing else moves."""
    flags = _FALLOC_FL_PUNCH_HOLE | _FALLOC_FL_KEEP_SIZE
    _call("fallocate", descriptor, flags, ctypes.c_long(start), ctypes.c_long(length))


def pivot_root(new: str, old: str) -> None:
    """Make ``new`` the root and put the old one at ``old``."""
    _syscall("pivot_root", os.fsencode(new), os.fsencode(old), subject=new)


def set_hostname(name: str) -> None:
    """The name of this UTS namespace."""
    raw = name.encode()
    _call("sethostname", raw, ctypes.c_size_t(len(raw)))


def set_title(title: str) -> None:
    """What /proc shows as this process's command line: our own one is full of the host's paths."""
    with open("/proc/self/stat", "rb") as reader:
        fields = reader.read().rpartition(b") ")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, the 48th and 49th of all fields
    if not 0 < start < end:
        raise OSError(errno.ENODATA, "no address of the command line", "/proc/self/stat")
    text = os.fsencode(title)[: end - start - 1]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, text, len(text))


def signal_thread(process: int, thread: int, number: int) -> None:
    """Send a signal to one thread; one that has ended is fine."""
    try:
        _syscall("tgkill", process, thread, number)
    except ProcessLookupError:
        return


def die_with_parent() -> None:
    """SIGKILL for this process when its parent thread ends. A later gain of privileges or change of uid undoes it."""
    _prctl(_PR_SET_PDEATHSIG, 9)


def set_dumpable(dumpable: bool) -> None:
    """Whether others of this uid may look into this process; also decides who owns its files in /proc."""
    _prctl(_PR_SET_DUMPABLE, int(dumpable))


def forbid_new_privileges() -> None:
    """No exec gains privileges any more."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Empty all capability sets, and the bounding set, for good."""
    for capability in range(_LAST_CAPABILITY_SEARCHED + 1):
        try:
            _prctl(_PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            break  # the kernel's last capability was the one before
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _syscall("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


def leave_keyrings() -> None:
    """An empty session keyring: the inherited one may hold the user's keys."""
    _syscall("keyctl", _KEYCTL_JOIN_SESSION_KEYRING, None)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install_filter(program: bytes) -> None:
    """Put a seccomp filter (an array of struct sock_filter) over this process and its children."""
    wire = _Program(len(program) // 8, program)
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(wire))


def _prctl(option: int, *arguments: object) -> None:
    wide = [ctypes.c_ulong(argument) if isinstance(argument, int) else argument for argument in arguments]
    wide += [ctypes.c_ulong(0)] * (4 - len(wide))
    _call("prctl", option, *wide)
