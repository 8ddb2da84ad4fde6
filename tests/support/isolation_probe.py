"""Runs inside a sandbox, tries to get out or to look out, and prints what came of it as one JSON object.

Its argument is JSON: what there is on the host to be found (see ``tests/functional/test_isolation.py``). Each attempt
is a function ``try_*``; an attempt that raised is reported as its exception's text. Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import pwd
import resource
import signal
import socket
import stat
import sys
import threading
from collections.abc import Callable

LIBC = ctypes.CDLL(None, use_errno=True)
MACHINE = os.uname().machine
# name -> numbers on x86_64 and aarch64
CALLS = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clone3": (435, 435),
    "fsopen": (430, 430),
    "io_uring_setup": (425, 425),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "move_mount": (429, 429),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "setns": (308, 268),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}
CLONE = (56, 220)
NAMESPACES = {
    "mount": 0x00020000,
    "cgroup": 0x02000000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
FAMILIES = {"netlink": 16, "packet": 17, "alg": 38, "vsock": 40, "bluetooth": 31, "can": 29, "tipc": 30, "xdp": 44}


def column() -> int:
    return 0 if MACHINE == "x86_64" else 1


def outcome(action: Callable[[], object]) -> str:
    """``ok``, or the name of the errno that an action failed with."""
    try:
        action()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "ok"


def call(number: int, *arguments: int) -> int:
    """A system call by number; OSError like any other."""
    result = LIBC.syscall(ctypes.c_long(number), *(ctypes.c_long(argument) for argument in arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), "syscall")
    return int(result)


def in_child(action: Callable[[], object]) -> str:
    """What becomes of a process that does it: ``signal N``, or the outcome."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.write(writer, outcome(action).encode())
        finally:
            os._exit(0)
    os.close(writer)
    _, status = os.waitpid(process, 0)
    text = os.read(reader, 100).decode()
    os.close(reader)
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else text


def open_descriptors() -> list[str]:
    names = [name for name in os.listdir("/proc/self/fd") if name not in ("0", "1", "2")]
    return [name for name in names if os.path.exists(f"/proc/self/fd/{name}")]


def walk(names: list[str]) -> tuple[list[str], list[str], list[str]]:
    """All directories, sockets, and paths with one of ``names`` in them, that can be listed, but for /proc."""
    folders, sockets, matches = [], [], []
    pending = ["/"]
    while pending:
        folder = pending.pop()
        folders.append(folder)
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            if any(name in entry.name for name in names):
                matches.append(entry.path)
            if entry.is_dir(follow_symlinks=False):
                if entry.path != "/proc":
                    pending.append(entry.path)
            elif not entry.is_file() and not entry.is_symlink() and stat.S_ISSOCK(os.lstat(entry.path).st_mode):
                sockets.append(entry.path)
    return folders, sockets, matches


DESCRIPTORS = open_descriptors()
FOLDERS, SOCKETS, MATCHES = walk(json.loads(sys.argv[1])["names"])


def try_read(host: dict) -> dict[str, str]:
    return {path: outcome(lambda path=path: open(path, "rb").close()) for path in host["secret_files"]}


def try_list(host: dict) -> dict[str, list[str] | None]:
    """What stands in each of the host's top-level directories, if it is there at all."""

    def names(path: str) -> list[str] | None:
        try:
            return sorted(os.listdir(path))
        except OSError:
            return None

    return {path: names(path) for path in host["top_level"]}


def try_find(host: dict) -> list[str]:
    """Paths with one of the names that exist only on the host."""
    return MATCHES


def try_sockets(host: dict) -> list[str]:
    """Inodes of sockets anywhere."""
    return SOCKETS


def try_unix(host: dict) -> dict[str, str]:
    def connect(address: str) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect("\0" + address[1:] if address.startswith("@") else address)

    return {address: outcome(lambda address=address: connect(address)) for address in host["unix"]}


def try_append(host: dict) -> dict[str, str]:
    """Write into the host's own files."""

    def append(path: str) -> None:
        with open(path, "ab") as writer:
            writer.write(host["marker"].encode())

    return {path: outcome(lambda path=path: append(path)) for path in host["host_files"]}


def try_replace(host: dict) -> dict[str, str]:
    """Replace the host's files by rename, and remove one: allowed, in the sandbox's own layer."""

    def replace(path: str) -> None:
        with open(f"{path}.new", "w") as writer:
            writer.write(host["marker"])
        os.rename(f"{path}.new", path)

    return {path: outcome(lambda path=path: replace(path)) for path in host["host_files"]}


def try_processes(host: dict) -> dict[str, object]:
    pids = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    lines = {}
    for pid in pids:
        with open(f"/proc/{pid}/cmdline", "rb") as reader:
            lines[pid] = reader.read(200).replace(b"\0", b" ").decode(errors="replace").strip()
    return {
        "own": os.getpid(),
        "all": pids,
        "command_lines": lines,
        "kill": {pid: outcome(lambda pid=pid: os.kill(pid, 0)) for pid in host["pids"]},
    }


def try_init(host: dict) -> dict[str, str]:
    """Process 1 is ours to see, and not to touch."""

    def open_memory() -> None:
        os.close(os.open("/proc/1/mem", os.O_RDWR))

    return {
        "mem": outcome(open_memory),
        "fd": outcome(lambda: os.listdir("/proc/1/fd")),
        "environ": outcome(lambda: open("/proc/1/environ", "rb").read()),
        "root": outcome(lambda: os.listdir("/proc/1/root/")),
        "maps": outcome(lambda: open("/proc/1/maps", "rb").read()),
        "ns": outcome(lambda: os.readlink("/proc/1/ns/net")),
        "kill": outcome(lambda: os.kill(1, signal.SIGKILL)),
        "stop": outcome(lambda: os.kill(1, signal.SIGSTOP)),
        "pidfd": outcome(lambda: call(CALLS["pidfd_getfd"][column()], os.pidfd_open(1), 0, 0)),
    }


def try_network(host: dict) -> dict[str, object]:
    def connect(address: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family) as connection:
            connection.settimeout(3)
            connection.connect((address, port))

    def send_datagram() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"x", ("192.0.2.1", 53))

    return {
        "interfaces": [name for _, name in socket.if_nameindex()],
        "connect": {f"{a} {p}": outcome(lambda a=a, p=p: connect(a, p)) for a, p in host["tcp"]},
        "datagram": outcome(send_datagram),
        "raw": outcome(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close()),
    }


def try_families(host: dict) -> dict[str, str]:
    def make(family: int, protocol: int = 0) -> None:
        kind = socket.SOCK_RAW if family in (16, 17) else socket.SOCK_STREAM
        socket.socket(family, kind, protocol).close()

    found = {name: outcome(lambda family=family: make(family, 4)) for name, family in FAMILIES.items()}
    found["netlink route"] = outcome(lambda: make(16, 0))
    found["pair of vsock"] = outcome(lambda: call((53, 199)[column()], 40, 1, 0, 0))
    return found


def try_calls(host: dict) -> dict[str, str]:
    return {name: outcome(lambda n=n: call(n[column()], 0, 0, 0, 0, 0)) for name, n in CALLS.items()}


def try_namespaces(host: dict) -> dict[str, str]:
    """clone() with each flag; SIGCHLD alone is what fork does and must work."""
    number = CLONE[column()]

    def clone(flags: int) -> None:
        if call(number, flags | signal.SIGCHLD, 0, 0, 0, 0) == 0:
            os._exit(0)
        os.wait()

    return {name: in_child(lambda f=flag: clone(f)) for name, flag in {"none": 0, **NAMESPACES}.items()}


def try_other_abis(host: dict) -> dict[str, str]:
    """getpid through the x32 and the i386 doors."""
    if MACHINE != "x86_64":
        return {}

    def i386() -> None:
        code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # mov eax, 20; int 0x80; ret
        address = ctypes.addressof(ctypes.c_char.from_buffer(code))
        ctypes.CFUNCTYPE(ctypes.c_int)(address)()

    return {"x32": in_child(lambda: call(0x40000000 + 39)), "i386": in_child(i386)}


def try_status(host: dict) -> dict[str, str]:
    with open("/proc/self/status") as reader:
        rows = dict(line.rstrip("\n").split(":\t", 1) for line in reader if ":\t" in line)
    kept = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Uid", "Gid", "Groups")
    return {name: rows[name].strip() for name in kept}


def try_identity(host: dict) -> dict[str, object]:
    def text(path: str) -> str:
        with open(path) as reader:
            return reader.read().strip()

    return {
        "uid": os.getuid(),
        "gid": os.getgid(),
        "name": pwd.getpwuid(os.getuid()).pw_name,
        "home": os.path.expanduser("~"),
        "cwd": os.getcwd(),
        "host": socket.gethostname(),
        "setgroups": text("/proc/self/setgroups"),
        "map": text("/proc/self/uid_map").split(),
        "become root": outcome(lambda: os.setuid(0)),
        "owner of home": os.stat("/work").st_uid,
        "cgroup": text("/proc/self/cgroup").splitlines(),
    }


def try_environment(host: dict) -> dict[str, str]:
    return dict(os.environ)


def try_descriptors(host: dict) -> list[str]:
    return DESCRIPTORS


def try_mounts(host: dict) -> list[str]:
    with open("/proc/self/mountinfo") as reader:
        return reader.read().splitlines()


def try_devices(host: dict) -> dict[str, object]:
    def use_terminal() -> None:
        first, second = os.openpty()
        os.close(first)
        os.close(second)

    return {
        "names": sorted(os.listdir("/dev")),
        "mknod": outcome(lambda: os.mknod("/tmp/disk", stat.S_IFBLK | 0o600, os.makedev(254, 0))),
        "full": outcome(lambda: os.write(os.open("/dev/full", os.O_WRONLY), b"x")),
        "pty": outcome(use_terminal),
        "shm": outcome(lambda: open("/dev/shm/x", "w").close()),
        "sys": sorted(os.listdir("/sys") + os.listdir("/sys/devices") + os.listdir("/sys/devices/system")),
        "sys writable": outcome(lambda: open("/sys/devices/system/cpu/x", "w").close()),
        "proc sys writable": outcome(lambda: open("/proc/sys/kernel/core_pattern", "w").close()),
        "sysrq": outcome(lambda: open("/proc/sysrq-trigger", "w").close()),
    }


def try_processes_limit(host: dict) -> dict[str, object]:
    """How many threads can be had before the limit says no, and whether it can be raised."""
    threading.stack_size(65536)
    enough = threading.Event()
    threads = []
    failed = False
    try:
        for _ in range(host["more_threads_than_allowed"]):
            thread = threading.Thread(target=enough.wait)
            thread.start()
            threads.append(thread)
    except RuntimeError:
        failed = True
    enough.set()
    for thread in threads:
        thread.join()
    infinite = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    try:
        resource.setrlimit(resource.RLIMIT_NPROC, infinite)
        raised = True
    except ValueError:
        raised = False
    return {"failed": failed, "count": len(threads), "raised": raised}


def try_mark(host: dict) -> int:
    """Make a file of a name that the host will look for, wherever that is possible; in how many places it was."""
    places = [path for path in FOLDERS if path.count("/") <= 3 and not path.startswith("/dev")]
    return sum(outcome(lambda path=path: open(f"{path}/{host['marker']}", "w").close()) == "ok" for path in places)


def main() -> None:
    """Try everything and print the report."""
    host = json.loads(sys.argv[1])
    report: dict[str, object] = {}
    for name, attempt in list(globals().items()):
        if name.startswith("try_"):
            try:
                report[name[4:]] = attempt(host)
            except Exception as error:  # reported, and then seen by the test
                report[name[4:]] = f"raised {error!r}"
    print(json.dumps(report))


main()
