"""What a sandbox sees as its file system: built in the child's mount namespace, then made its root.

Stand-alone (see ``runtime``). Everything is put together on the *stage*, a tmpfs at ``vms/<id>/stage`` that becomes
the working directory, and is named from there by short relative paths: mountinfo shows such names inside, and they say
nothing about the host. On the stage are

- ``s``  the skeleton (see ``skeleton``): ``s/root`` is the base of the root, ``s/layer/usr`` lies over ``/usr``, …;
- ``w``  the writable layer: a bind of ``vms/<id>/layer``, or a tmpfs;
- ``p``  the interpreter's prefix, if it is not among what is visible anyway;
- ``v0``, ``v1``, …  directories of the host that the sandbox's uid could not reach by itself;
- ``i0``, ``i1``, …  layers of an image: ``i0/%root`` lies over the base of the root, ``i0/usr`` over ``/usr``, …;
- ``e``  a tmpfs for files that are bound one by one, where there are no overlays;
- ``n``  the new root.

With root privileges the stage is made before the uid is given up (``stage`` in the supervisor), since afterwards the
way to the state folder is closed; otherwise in the child.
"""

from __future__ import annotations

import errno
import os

from . import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

DISK = "disk"  # overlays, the writable layer in the state folder
MEMORY = "memory"  # overlays, the writable layer on a tmpfs
BIND = "bind"  # no overlay: read-only binds, the rest on a tmpfs
ROOT_LAYER = "%root"  # no layer_name has such a %
UPPER, WORK = ".upper", ".work"

_ROOT = "n"
_QUIET = kernel.MS_NOSUID | kernel.MS_NODEV
_SEALED = kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NOSUID | kernel.MOUNT_ATTR_NODEV
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = (
    ("fd", "/proc/self/fd"),
    ("stdin", "fd/0"),
    ("stdout", "fd/1"),
    ("stderr", "fd/2"),
    ("ptmx", "pts/ptmx"),
)
_CPU = "/sys/devices/system/cpu"


class Plan:
    """What to build. Made by the driver, sent as a plain dict.

    Attributes:
        folder: ``vms/<id>``, with the directories ``layer`` and ``stage`` in it.
        skeleton: The skeleton's folder.
        writable: DISK, MEMORY or BIND.
        visible: Host directories, parents before what is in them.
        staged: Those of ``visible`` that the sandbox's uid may be unable to reach.
        plain: Those of ``visible`` that are bound read-only even where overlays work.
        prefix: The interpreter's prefix to bind at its own path, or None.
        masked: Directories in the prefix that show empty.
        layers: Image layers, the topmost first.
        disk_bytes: Size of a writable layer on a tmpfs.
        shared_memory_bytes: Size of /dev/shm.
    """

    __slots__ = (
        "disk_bytes",
        "folder",
        "layers",
        "masked",
        "plain",
        "prefix",
        "shared_memory_bytes",
        "skeleton",
        "staged",
        "visible",
        "writable",
    )

    def __init__(
        self,
        *,
        folder: str,
        skeleton: str,
        writable: str,
        visible: Sequence[str],
        staged: Sequence[str] = (),
        plain: Sequence[str] = (),
        prefix: str | None = None,
        masked: Sequence[str] = (),
        layers: Sequence[str] = (),
        disk_bytes: int,
        shared_memory_bytes: int,
    ) -> None:
        self.folder = folder
        self.skeleton = skeleton
        self.writable = writable
        self.visible = tuple(visible)
        self.staged = tuple(staged)
        self.plain = tuple(plain)
        self.prefix = prefix
        self.masked = tuple(masked)
        self.layers = tuple(layers)
        self.disk_bytes = disk_bytes
        self.shared_memory_bytes = shared_memory_bytes

    def to_wire(self) -> dict[str, object]:
        """A dict of plain values."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Plan:
        """The plan that ``to_wire`` made the dict of."""
        return cls(**wire)


def isolate() -> None:
    """A mount namespace of our own, from which nothing spreads back."""
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)


def hide_groups() -> None:
    """A namespace of control groups too: their paths name the user, and us."""
    try:
        kernel.unshare(kernel.CLONE_NEWCGROUP)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a kernel without control groups has nothing to hide
            raise


def stage(plan: Plan) -> None:
    """Make the stage and go there."""
    here = os.path.join(plan.folder, "stage")
    kernel.mount("tmpfs", here, "tmpfs", flags=_QUIET, options="mode=0755")
    os.chdir(here)
    for name in (_ROOT, "e"):
        os.mkdir(name, 0o755)
    sources = {"s": plan.skeleton, "w": os.path.join(plan.folder, "layer")}
    if plan.prefix is not None:
        sources["p"] = plan.prefix
    sources.update((f"v{index}", path) for index, path in enumerate(plan.staged))
    sources.update((f"i{index}", path) for index, path in enumerate(plan.layers))
    for name, path in sources.items():
        os.mkdir(name, 0o755)
        kernel.mount(path, name, flags=kernel.MS_BIND | kernel.MS_REC)
    for name in ("s", *(f"i{index}" for index in range(len(plan.layers)))):
        kernel.set_mount_attributes(name, _SEALED)


def mount_root(plan: Plan) -> None:
    """The base: a writable root with empty places for all that follows."""
    if plan.writable != DISK:
        kernel.mount("tmpfs", "w", "tmpfs", flags=_QUIET, options=f"mode=0755,size={plan.disk_bytes}")
    if plan.writable == BIND:
        kernel.mount("w", _ROOT, flags=kernel.MS_BIND)
        _copy_tree("s/root", _ROOT)
        return
    _overlay(ROOT_LAYER, lower=[*_image_layers(plan, ROOT_LAYER), "s/root"], target=_ROOT)


def mount_visible(plan: Plan) -> None:
    """The host's directories, each under a private writable layer where that is possible."""
    bound = []
    for path in plan.visible:
        source = f"v{plan.staged.index(path)}" if path in plan.staged else path
        if plan.writable == BIND or path in plan.plain or not _try_overlay(plan, path, source):
            _bind_sealed(source, _inside(path))
            bound.append(path)
    if set(bound) - set(plan.plain):
        kernel.mount("tmpfs", "e", "tmpfs", flags=_QUIET, options="mode=0755")
        _mask_specials(bound)
    if "/etc" in bound:
        _bind_our_files()
    if plan.prefix is not None:
        _bind_sealed("p", _inside(plan.prefix))
        for path in plan.masked:
            kernel.mount("tmpfs", _inside(path), "tmpfs", flags=_QUIET | kernel.MS_RDONLY, options="mode=0755")


def _inside(path: str) -> str:
    return _ROOT + path


def layer_name(path: str) -> str:
    """The name of a visible directory among layers: no slash in it, and none is another's."""
    return path.strip("/").replace("%", "%25").replace("/", "%2f")


def _image_layers(plan: Plan, name: str) -> list[str]:
    """What the image's layers have of that directory, the topmost first."""
    folders = (f"i{index}/{name}" for index in range(len(plan.layers)))
    return [folder for folder in folders if os.path.isdir(folder)]


def _try_overlay(plan: Plan, path: str, source: str) -> bool:
    name = layer_name(path)
    above = _image_layers(plan, name)
    try:
        _overlay(name, lower=[*above, f"s/layer/{name}", source], target=_inside(path))
    except OSError as error:
        # EINVAL: a mount of its own lies below this directory. The rest: a file system that overlayfs cannot take.
        if above or error.errno not in (errno.EINVAL, errno.EPERM, errno.ELOOP, errno.EOPNOTSUPP):
            raise  # without its layers it would be another image
        return False
    return True


def _overlay(name: str, *, lower: Sequence[str], target: str) -> None:
    upper, work = f"w/{name}{UPPER}", f"w/{name}{WORK}"
    for path in (upper, work):
        os.mkdir(path, 0o755)
    layers = ":".join(path.replace("\\", "\\\\").replace(":", "\\:") for path in lower)
    options = f"lowerdir={_quote(layers)},upperdir={_quote(upper)},workdir={_quote(work)},userxattr"
    kernel.mount("overlay", target, "overlay", flags=_QUIET, options=options)


def _quote(path: str) -> str:
    return path.replace(",", "\\,")


def _bind_sealed(source: str, target: str) -> None:
    kernel.mount(source, target, flags=kernel.MS_BIND | kernel.MS_REC)
    kernel.set_mount_attributes(target, _SEALED)


def _copy_tree(source: str, target: str) -> None:
    """Copy directories, links and small files; what the base of the root is made of."""
    for entry in os.scandir(source):
        there = os.path.join(target, entry.name)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), there)
        elif entry.is_dir():
            os.mkdir(there)
            _copy_tree(entry.path, there)
            os.chmod(there, entry.stat().st_mode & 0o7777)
        else:
            _copy_file(entry.path, there)


def _copy_file(source: str, target: str) -> None:
    with open(source, "rb") as reader, open(target, "wb") as writer:
        writer.write(reader.read())
    os.chmod(target, os.stat(source).st_mode & 0o777)


def _mask_specials(bound: Sequence[str]) -> None:
    """Hide the sockets, pipes and devices that the skeleton's walk found: a bind would show the real ones."""
    with open("s/specials", "rb") as record:
        paths = [os.fsdecode(path) for path in record.read().split(b"\0") if path]
    os.close(os.open("e/.empty", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
    for path in paths:
        if any(path.startswith(f"{top}/") for top in bound) and os.path.lexists(_inside(path)):
            _bind_sealed("e/.empty", _inside(path))


def _bind_our_files() -> None:
    """/etc/passwd and its like, over the host's (those that the host lacks cannot be added to a read-only bind)."""
    for name in os.listdir("s/layer/etc"):
        source, target = f"s/layer/etc/{name}", _inside(f"/etc/{name}")
        if os.path.isfile(source) and os.path.lexists(target) and not os.path.islink(target):
            _copy_file(source, f"e/{name}")
            _bind_sealed(f"e/{name}", target)


def mount_proc(plan: Plan) -> None:
    """A /proc of our own pid namespace. Refused where parts of the host's are masked."""
    del plan
    kernel.mount("proc", _inside("/proc"), "proc", flags=_QUIET | kernel.MS_NOEXEC)


def mount_devices(plan: Plan) -> None:
    """/dev: the few devices that every program expects."""
    dev = _inside("/dev")
    size = "mode=0755,size=64k,nr_inodes=512"
    kernel.mount("tmpfs", dev, "tmpfs", flags=kernel.MS_NOSUID | kernel.MS_NOEXEC, options=size)
    for name in _DEVICES:
        os.close(os.open(f"{dev}/{name}", os.O_CREAT | os.O_CLOEXEC, 0o666))
        kernel.mount(f"/dev/{name}", f"{dev}/{name}", flags=kernel.MS_BIND)
    for name, target in _DEVICE_LINKS:
        os.symlink(target, f"{dev}/{name}")
    os.mkdir(f"{dev}/shm")
    size = f"mode=1777,size={plan.shared_memory_bytes}"
    kernel.mount("tmpfs", f"{dev}/shm", "tmpfs", flags=_QUIET | kernel.MS_NOEXEC, options=size)


def mount_terminals(plan: Plan) -> None:
    """A devpts of our own. No gid=5: a group that the user namespace does not map is refused."""
    del plan
    pts = _inside("/dev/pts")
    os.mkdir(pts, 0o755)
    options = "newinstance,ptmxmode=0666,mode=0620"
    kernel.mount("devpts", pts, "devpts", flags=kernel.MS_NOSUID | kernel.MS_NOEXEC, options=options)


def mount_sys(plan: Plan) -> None:
    """/sys: the CPUs, which runtimes count, and nothing else."""
    del plan
    if os.path.isdir(_CPU):
        _bind_sealed(_CPU, _inside(_CPU))


def enter(plan: Plan) -> None:
    """Make the new root the root, and let go of the old one and of the stage."""
    del plan
    os.chdir(_ROOT)
    kernel.pivot_root(".", ".")
    kernel.unmount(".")
    os.chdir("/")


# In this order; the names are those of probe.REMEDIES.
STEPS: tuple[tuple[str, Callable[[Plan], None]], ...] = (
    ("root", mount_root),
    ("visible", mount_visible),
    ("proc", mount_proc),
    ("dev", mount_devices),
    ("devpts", mount_terminals),
    ("sys", mount_sys),
    ("pivot", enter),
)
