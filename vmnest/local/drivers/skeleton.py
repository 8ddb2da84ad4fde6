"""The skeleton: what lies over the host's directories and under the sandbox's own writes. Made once, shared by all VMs.

Stand-alone (see ``runtime``); run as a worker process, as the sandbox's uid, so that it sees what a sandbox may see.
It makes, in its working directory,

- ``root``: the base of the root: empty places, links, and the agent (put there before);
- ``layer/<name>``: every readable directory of a visible host directory, empty, and owned by the sandbox's uid. In
  the overlay such a directory shows the host's files and the skeleton's owner, so that ``mkdir``, replacing by
  rename, ``rm -r`` and ``pip install`` work where only nobody's directories would be; over ``/etc`` with the files
  that are ours;
- ``specials``: paths of the sockets, pipes and devices that were met; each is also whited out in the layer.
"""

from __future__ import annotations

import marshal
import os
import stat
import sys

from . import kernel, mounts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

AGENT_FOLDER = "/.sandbox"
PROGRAMS_FOLDER = "/.sandbox/bin"
_MAX_FOLDERS = 200_000
_HIDDEN = 0o311
_PROGRAM_FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin")
_PLACES = (
    ("dev", 0o755),
    ("home", 0o755),
    ("media", 0o755),
    ("mnt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("run/lock", 0o1777),
    ("srv", 0o755),
    ("sys/devices/system/cpu", 0o755),
    ("tmp", 0o1777),
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/log", 0o755),
    ("var/tmp", 0o1777),
    ("work", 0o755),
    (PROGRAMS_FOLDER[1:], 0o755),
)
_ETC = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\n"
    "sandbox:x:1000:1000:sandbox:/work:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n",
    "hostname": "sandbox\n",
    "resolv.conf": "# No name server: nothing but the sandbox itself can be reached.\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"
    "networks: files\nprotocols: files\nservices: files\n",
}


def main() -> None:
    """Make a skeleton in the directory that standard input's configuration names."""
    config = marshal.load(sys.stdin.buffer)  # noqa: S302 - from the daemon that started us
    os.chdir(config["target"])
    # Opened while we may: the way to a directory can be closed to the sandbox's uid, which sees it all the same.
    tops = {path: top for path in config["walked"] if (top := _open_folder(path)) >= 0}
    if (uid := config["uid"]) is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        kernel.set_dumpable(True)  # or /proc/self/fd would be root's
    os.umask(0o022)
    _make_root(config)
    _make_layers(config, tops)


class OrphanedError(Exception):
    """The daemon that wants the skeleton is gone."""


def _open_folder(path: str) -> int:
    try:
        return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # gone since the driver looked, or closed to us too
        return -1


def _make_root(config: dict[str, Any]) -> None:
    for place, mode in _PLACES:
        _make_place(place, mode)
    for path in config["visible"]:
        _make_place(path[1:], 0o755)
    for path, target in (*config["links"], ("/var/run", "/run"), ("/var/lock", "/run/lock")):
        os.symlink(target, f"root{path}")
    os.symlink(config["interpreter"], f"root{PROGRAMS_FOLDER}/python")
    if config["prefix"] is not None:
        _make_hidden(config["prefix"])


def _make_place(place: str, mode: int) -> None:
    os.makedirs(f"root/{place}", mode=0o755, exist_ok=True)
    os.chmod(f"root/{place}", mode)


def _make_hidden(prefix: str) -> None:
    """The way to the interpreter's prefix: it can be walked and not listed."""
    os.makedirs(f"root{prefix}", mode=0o755, exist_ok=True)
    parent = os.path.dirname(prefix)
    while parent != "/":
        os.chmod(f"root{parent}", _HIDDEN)
        parent = os.path.dirname(parent)


def _make_layers(config: dict[str, Any], tops: dict[str, int]) -> None:
    specials: list[str] = []
    budget = _MAX_FOLDERS
    os.mkdir("layer", 0o755)
    for path in config["visible"]:
        layer = f"layer/{mounts.layer_name(path)}"
        os.mkdir(layer, 0o755)
        if path in tops:
            here = f"/proc/self/fd/{tops[path]}"
            found: list[str] = []
            budget -= _mirror(here, layer, specials=found, budget=budget, parent=config["parent"])
            specials += [path + special.removeprefix(here) for special in found]
    for name, text in _ETC.items():
        if os.path.isdir("layer/etc"):
            # As bytes: the codec of a text file may be a module of an interpreter that can no longer be read.
            with open(f"layer/etc/{name}", "wb") as writer:
                writer.write(text.encode())
            os.chmod(f"layer/etc/{name}", 0o644)
    _name_interpreter(config["interpreter"])
    for folder in config["extra"]:
        os.mkdir(folder, 0o755)
    with open("specials", "wb") as record:
        record.write(b"\0".join(os.fsencode(path) for path in specials))


def _name_interpreter(interpreter: str) -> None:
    """``python`` and ``python3``, where the host has no such name: a login shell's PATH lacks PROGRAMS_FOLDER."""
    for name in ("python", "python3"):
        is_there = any(os.path.lexists(f"{folder}/{name}") for folder in _PROGRAM_FOLDERS)
        if not is_there and os.path.isdir("layer/usr/local/bin"):
            os.symlink(interpreter, f"layer/usr/local/bin/{name}")


def _mirror(top: str, layer: str, *, specials: list[str], budget: int, parent: int) -> int:
    """Make ``top``'s directories in ``layer``; returns how many. Other file systems below it are left alone."""
    device = os.stat(top).st_dev
    made = 0
    pending = [(top, layer)]
    while pending:
        source, target = pending.pop()
        if os.getppid() != parent:
            raise OrphanedError
        for entry, status in _list_folder(source):
            if stat.S_ISDIR(status.st_mode):
                if made < budget and status.st_dev == device and os.access(entry.path, os.R_OK | os.X_OK):
                    os.mkdir(f"{target}/{entry.name}", 0o700 | status.st_mode & 0o777)
                    pending.append((entry.path, f"{target}/{entry.name}"))
                    made += 1
            else:
                specials.append(entry.path)
                os.mknod(f"{target}/{entry.name}", stat.S_IFCHR, os.makedev(0, 0))  # overlayfs: "nothing here"
    return made


def _list_folder(path: str) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    """Its directories and specials; the files and links, most of it, cost no call."""
    try:
        entries = list(os.scandir(path))
    except OSError:  # unreadable, or gone since its parent was read: it shows as it is
        return
    for entry in entries:
        if entry.is_symlink() or entry.is_file(follow_symlinks=False):
            continue
        try:
            yield entry, entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
