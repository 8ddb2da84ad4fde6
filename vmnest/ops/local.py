"""The local cloud: up, down, status, and the variables that lead others to it."""

from __future__ import annotations

from .. import daemon, errors, registry, rendezvous, settings
from .. import target as targets
from ..deadline import Deadline, backoff

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["down", "env", "status", "up"]

START_SECONDS = 30.0
ASK_SECONDS = 10.0
STOP_SECONDS = 30.0
MAX_SHOWN = 8


def up(*, timeout: float = START_SECONDS) -> dict[str, object]:
    """Start the local cloud, if it does not run, and say what it is.

    Args:
        timeout: Seconds that the start may take.
    """
    environ = settings.environment()
    was_running = daemon.find(environ) is not None
    running = daemon.ensure(environ, deadline=Deadline(timeout))
    return {**_describe(running, environ), "started": not was_running}


def status() -> dict[str, object]:
    """Say whether the local cloud runs, what isolates its sandboxes, and which it has. Starts nothing.

    ``states`` counts its MicroVMs, ended ones included, by their states; ``builds`` tells which versions of images are
    being built.
    """
    environ = settings.environment()
    running = daemon.find(environ)
    if running is None:
        folder = rendezvous.folder(environ)
        notes = [_ORPHANED] if rendezvous.has_vms(folder) else []
        return {"running": False, "folder": folder, "states": {}, "microvms": [], "builds": [], "notes": notes}
    return _describe(running, environ)


_ORPHANED = "it was killed, and sandboxes go on without it: the next command that needs it takes them over"


def _describe(running: rendezvous.Daemon, environ: Mapping[str, str]) -> dict[str, object]:
    told = daemon.ask(
        running, method="GET", path=rendezvous.STATUS_PATH, environ=environ, deadline=Deadline(ASK_SECONDS)
    )
    known, notes = _known_names(environ)
    return {
        **told,
        "running": True,
        "folder": rendezvous.folder(environ),
        "url": running.url,
        "pid": running.pid,
        "version": running.version,
        "states": told.get("microvms"),
        "builds": told.get("builds", []),  # a daemon of an older version builds nothing
        "microvms": _alive(environ, known=known),
        "notes": [*daemon.notes(environ), *notes],
    }


def _known_names(environ: Mapping[str, str]) -> tuple[dict[str | None, str], list[str]]:
    """The names of MicroVMs by their ids, and what is to be said of them."""
    try:
        return {record.microvm_id: record.name for record in registry.open_default(environ).all()}, []
    except errors.StateFileError as error:
        # Whoever wants the local cloud stopped needs no names for it.
        return {}, [f"no names are known: {error.message}"]


def _alive(environ: Mapping[str, str], *, known: Mapping[str | None, str]) -> list[dict[str, object]]:
    """The MicroVMs that have not ended, the oldest first, each with the name that it is recorded under, if any."""
    deadline = Deadline(ASK_SECONDS)
    control = targets.resolve(local=True, environ=environ).control(deadline=deadline)
    return [
        {"microvm_id": each.microvm_id, "state": each.state, "name": known.get(each.microvm_id)}
        for each in sorted(control.microvms.list(deadline=deadline), key=lambda each: each.started_at)
        if not each.ended
    ]


def down(*, force: bool = False, timeout: float = STOP_SECONDS) -> dict[str, object]:
    """Stop the local cloud.

    Args:
        force: End the sandboxes that run in it, and the builds of images; without, it is not stopped while there are
            any.
        timeout: Seconds that this may take.

    Raises:
        errors.LocalBusyError: sandboxes run, or images are being built, and ``force`` is False.
    """
    environ = settings.environment()
    deadline = Deadline(timeout)
    running = daemon.find(environ)
    if running is None:
        if not rendezvous.has_vms(rendezvous.folder(environ)):
            return {"stopped": False, "ended": []}
        # It was killed. Who wants it stopped wants its sandboxes ended, too, or to hear that there are some.
        running = daemon.ensure(environ, deadline=deadline)
    found = _describe(running, environ)
    ended, builds = found["microvms"], found["builds"]
    assert isinstance(ended, list)
    assert isinstance(builds, list)
    if (ended or builds) and not force:
        raise _busy(ended, builds)
    daemon.ask(running, method="POST", path=rendezvous.SHUTDOWN_PATH, environ=environ, deadline=deadline)
    _wait_until_gone(rendezvous.folder(environ), deadline)
    return {"stopped": True, "ended": ended}


def _busy(alive: list[dict[str, object]], builds: Sequence[str] = ()) -> errors.LocalBusyError:
    names = [str(each["name"]) for each in alive if each["name"]]
    ids = [str(each["microvm_id"]) for each in alive if not each["name"]]
    parts = [_several(names, "sandbox", "sandboxes")] if names else []
    if ids:
        # Of boto3 and the like, of another state file, or of records that were removed by hand.
        parts.append(_several(ids, "MicroVM without a name here", "MicroVMs without a name here"))
    if builds:
        parts.append(_several(list(builds), "image that is being built", "images that are being built"))
    remedy = "Remove them first (vmnest rm NAME), or end" if names and not ids and not builds else "End"
    return errors.LocalBusyError(
        f"the local cloud has {' and '.join(parts)}", hint=f"{remedy} them with: vmnest local down --force"
    )


def _several(shown: list[str], one: str, many: str) -> str:
    more = ", ..." if len(shown) > MAX_SHOWN else ""
    return f"{len(shown)} {one if len(shown) == 1 else many}: {', '.join(shown[:MAX_SHOWN])}{more}"


def _wait_until_gone(folder: str, deadline: Deadline) -> None:
    import time

    for delay in backoff(last=0.5):
        if not rendezvous.is_alive(folder):
            return
        deadline.check("waiting for the local daemon to end")
        time.sleep(deadline.clamp(delay))


def env(*, timeout: float = START_SECONDS) -> dict[str, object]:
    """The environment variables by which boto3, the AWS CLI and the like work against the local cloud.

    The local cloud is started if it does not run. A variable whose value is null must not be set.

    Args:
        timeout: Seconds that the start may take.
    """
    environ = settings.environment()
    running = daemon.ensure(environ, deadline=Deadline(timeout))
    keys = rendezvous.keys(rendezvous.folder(environ))
    return {"environment": dict(rendezvous.environment(running, keys, environ=environ))}
