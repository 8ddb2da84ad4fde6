"""Which driver isolates sandboxes here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ... import errors
from . import identity, interpreter, layers, mounts, places, probe, removal, runtime
from .interface import ISOLATIONS
from .kernel import MACHINES
from .namespace import Cell, NamespaceDriver
from .rubbish import Rubbish


def select(*, folder: str, minimum: str, visible: Sequence[str], environ: Mapping[str, str]) -> NamespaceDriver:
    """Probe this machine and return a driver for it.

    Args:
        folder: The state folder (0700, ours).
        minimum: The weakest isolation that will do: one of interface.ISOLATIONS.
        visible: Further host directories that sandboxes can read.
        environ: The daemon's environment.

    Raises:
        errors.IsolationUnavailableError: no driver works here, or none is strong enough.
    """
    require(minimum)
    return NamespaceDriver(prepare(folder=folder, visible=visible, environ=environ))


def require(minimum: str) -> None:
    """See that there is a driver that isolates well enough, whether or not it works here.

    Raises:
        errors.IsolationUnavailableError: there is none.
    """
    if ISOLATIONS.index(minimum) > ISOLATIONS.index(NamespaceDriver.isolation):
        raise errors.IsolationUnavailableError(
            f"no driver on this machine isolates by {minimum}; the strongest is {NamespaceDriver.isolation}",
            hint="Set AGENT_SANDBOX_LOCAL_ISOLATION to namespace, or unset it, if that is enough.",
        )


def prepare(
    *,
    folder: str,
    visible: Sequence[str],
    environ: Mapping[str, str],
    system_interpreters: Sequence[str] = interpreter.SYSTEM_CANDIDATES,
    writables: Sequence[str] = (),
) -> Cell:
    """Probe the namespace driver; what it found to work. The last two arguments narrow what is tried."""
    machine = os.uname().machine
    if machine not in MACHINES:
        raise errors.IsolationUnavailableError(
            f"Programs cannot be isolated on this machine: vmnest knows no {machine}",
            hint="The namespace driver runs on x86_64 and aarch64.",
        )
    _sweep(folder)
    view = layers.view_host(visible, folder=folder)
    candidates = list(interpreter.list_candidates(visible=view.visible, system=system_interpreters))
    files = runtime.install(folder)
    uid = identity.choose(folder)
    cell = Cell(
        folder=folder,
        runtime=files,
        rubbish=Rubbish(folder, runtime=files),
        uid=uid,
        view=view,
        writable=mounts.DISK,
        interpreter=candidates[0],
        environ=environ,
        places=places.Places.of_folder(folder, uid=uid),
    )
    return probe.run(cell, candidates=candidates, writables=writables)


def _sweep(folder: str) -> None:
    """What a probe left whose daemon was killed."""
    for name in os.listdir(folder):
        if name.startswith("probe-"):
            removal.remove_tree(os.path.join(folder, name))
