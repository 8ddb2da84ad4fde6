"""What a driver is: the seam between the lifecycle of VMs and whatever isolates them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

ISOLATION_NAMESPACE = "namespace"
ISOLATION_KERNEL = "kernel"
ISOLATION_VM = "vm"
# Weakest first: a caller's minimum is met by what stands at the same place or behind it.
ISOLATIONS = (ISOLATION_NAMESPACE, ISOLATION_KERNEL, ISOLATION_VM)

EXITED = "exited"
LIFETIME = "lifetime"
STOPPED = "stopped"
MEMORY = "memory"
DISK = "disk"
LOST = "lost"

ENFORCED_CGROUP = "cgroup"
ENFORCED_WATCH = "watch"


@dataclass(frozen=True)
class Launch:
    """One VM to start.

    Attributes:
        microvm_id: The VM's id.
        folder: ``vms/<id>`` of the state folder; exists, 0700. The driver keeps its socket, logs and layers in it.
        command: The main process, or None for the agent.
        environment: What the main process finds besides the driver's own variables.
        cpus: CPUs that the VM may use, or None for all.
        memory_mib: Memory that the VM's processes, and the files that they keep in memory, may use together.
        disk_bytes: Size of the writable layer.
        max_seconds: The VM is ended this long after its start, whether or not a daemon lives.
        visible: Further host directories that can be read inside; the driver was selected with them.
        image_layers: Folders that lie over the host's programs, the topmost first.
        workdir: Where the main process starts, or None for the driver's own choice.
        keep_layer_at: Where what the VM wrote goes, as a folder for ``image_layers``, once its main process ended with
            status 0; it is there when ``on_end`` is called.
        egress: The VM has a way out: ``Machine.egress_listener``, which the main process's environment names as its
            HTTP proxy. What goes through is up to whoever serves it.
    """

    microvm_id: str
    folder: str
    environment: Mapping[str, str]
    memory_mib: int
    disk_bytes: int
    max_seconds: float
    command: tuple[str, ...] | None = None
    cpus: float | None = None
    visible: tuple[str, ...] = ()
    image_layers: tuple[str, ...] = ()
    workdir: str | None = None
    keep_layer_at: str | None = None
    egress: bool = False


@dataclass(frozen=True)
class Ended:
    """How a VM's main process ended.

    Attributes:
        exit_code: Its status, or None if a signal ended it or nobody saw it end.
        signal: The signal that ended it, or None.
        reason: ``exited`` by itself, ``lifetime`` over, ``stopped`` on request, ``memory`` or ``disk`` used up, or
            ``lost``: the supervisor died and took the VM with it.
    """

    exit_code: int | None
    signal: int | None
    reason: str


class Machine(Protocol):
    """A VM that was started. Its methods may be called from any thread."""

    @property
    def ended(self) -> Ended | None:
        """How it ended, or None while it runs."""

    @property
    def facts(self) -> Mapping[str, object]:
        """What really holds for it: ``isolation``, ``enforced`` (ENFORCED_CGROUP or ENFORCED_WATCH) and more."""

    @property
    def is_frozen(self) -> bool:
        """Whether ``freeze`` was the last that happened to it, by whichever daemon. Cheap; asks nobody."""

    def dial(self, port: int, *, timeout: float) -> socket.socket:
        """A blocking TCP socket, connected to ``127.0.0.1:port`` in the VM.

        Raises:
            ConnectionRefusedError: nothing listens there.
            TimeoutError: no connection within ``timeout`` seconds.
            errors.LocalCloudError: the VM is gone.

        The kernel connects to a frozen VM too, and nobody answers there: look at ``is_frozen`` before.
        """

    def egress_listener(self) -> socket.socket:
        """The socket on which the VM's programs ask for connections to the outside; the caller closes it.

        It listens for as long as the VM lives, whether or not anybody accepts: another daemon can take it as well.

        Raises:
            errors.LocalCloudError: the VM was started without ``egress``, or is gone.
        """

    def freeze(self) -> None:
        """Stop every process of the VM where it is; none of them runs any more on return. Idempotent.

        Time goes on: the maximum duration, and connections whose other end gives up.

        Raises:
            errors.LocalCloudError: the VM has ended, or not all of it could be stopped; then all of it runs on.
        """

    def thaw(self) -> None:
        """Let the VM go on, but for processes that were stopped (SIGSTOP) before ``freeze``. Idempotent.

        Raises:
            errors.LocalCloudError: the VM has ended.
        """

    def stop(self, *, grace: float = 0) -> None:
        """End it and wait until nothing of it is left; TERM first when ``grace`` seconds are given. Idempotent.

        A frozen VM gets no TERM and no grace, since it could not use them.
        """


class Driver(Protocol):
    """A way to isolate VMs on this machine."""

    @property
    def name(self) -> str:
        """The driver's name."""

    @property
    def isolation(self) -> str:
        """One of ISOLATIONS."""

    @property
    def writable(self) -> str:
        """How what VMs write is kept: one of mounts.DISK, MEMORY, BIND."""

    @property
    def obstacle_to_images(self) -> str:
        """Why no image can be built or run here, or nothing: then ``image_layers`` and ``keep_layer_at`` work."""

    @property
    def owner(self) -> int | None:
        """The uid whose files a sandbox may change, so whose the files of its image must be; None: our own."""

    def image_base(self) -> str:
        """Names what lies below all layers of images: another name, and what they were made on has changed."""

    def image_environment(self) -> Mapping[str, str]:
        """What a main process finds in its environment besides what its launch says."""

    def start(self, launch: Launch, *, on_end: Callable[[Ended], None]) -> Machine:
        """Start a VM; returns when its agent listens (its main process runs, if ``command`` is given).

        ``on_end`` is called once, from a thread of the driver, after the VM ended for whatever reason and was
        cleaned away; it must be short. It is not called when ``start`` itself fails.

        Raises:
            errors.LocalCloudError: the VM did not start; the message names the step and shows the console's end.
        """

    def adopt(self, folder: str, *, on_end: Callable[[Ended], None]) -> Machine | None:
        """The running VM of a folder that an earlier daemon started, or None if nothing answers there.

        From here on its end is seen, and ``on_end`` called as by ``start``. After None, ``discard`` the folder.
        """

    def discard(self, folder: str) -> Ended | None:
        """Clean what a VM of an earlier daemon left in its folder, and end it if it still runs.

        Returns how it ended, if that is recorded.
        """

    def close(self) -> None:
        """Let go of the driver's threads. VMs go on."""
