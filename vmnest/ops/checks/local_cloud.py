"""What sandboxes on this machine need. A daemon that runs is asked; none is started: a sandbox is tried without it."""

from __future__ import annotations

import contextlib
import os
import sys

from ... import daemon, errors, rendezvous, settings
from ...deadline import Deadline
from . import check, places, trial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .check import Check
    from .context import Context
    from .places import Finding

__all__ = ["PROBES"]

_ASK_SECONDS = 5.0
_VARIABLE = "AGENT_SANDBOX_LOCAL_DIR"
_ELSEWHERE = f"Set {_VARIABLE} to a folder of your own."
_TITLES = {"daemon": "local cloud", "overlay": "overlays"}
_ITS_SETTINGS = ("local_dir", *rendezvous.ITS_SETTINGS)


def system(context: Context) -> list[Check]:
    """Is this Linux at all?"""
    if _is_linux():
        return []
    try:
        daemon.require_linux()
    except errors.UnsupportedError as error:
        return [_check("system", check.FAILED, detail=error.message, remedy=error.hint)]
    return []


def _is_linux() -> bool:
    return sys.platform == "linux"


def _check(
    name: str,
    verdict: str,
    *,
    detail: str,
    remedy: str | None = None,
    data: Mapping[str, object] | None = None,
) -> Check:
    title = _TITLES.get(name, name)
    return check.Check(f"local.{name}", title=title, verdict=verdict, detail=detail, remedy=remedy, data=data)


def variables(context: Context) -> list[Check]:
    """``AGENT_SANDBOX_LOCAL_*``."""
    findings = []
    values = {}
    for name in _ITS_SETTINGS:
        row = settings.SETTINGS[name]
        try:
            found = settings.resolve(name, environ=context.environ)
        except errors.SettingError as error:
            findings.append(places.Finding(check.FAILED, error.message, remedy=error.hint))
        else:
            if found.source != "default":
                values[row.env] = context.environ[row.env]
    shown = ", ".join(f"{name}={value}" for name, value in values.items())
    fine = shown or "no AGENT_SANDBOX_LOCAL_* variable is set"
    return [places.combine("local.settings", title="settings", fine=fine, findings=findings, data={"set": values})]


def folder(context: Context) -> list[Check]:
    """The folder of the local cloud, and the room in it."""
    if not _is_linux():
        return []
    path = rendezvous.folder(context.environ)
    exists = os.path.isdir(path)
    findings = [*places.look_at_writing(path, variable=_VARIABLE), *_look_at_owner(path), *_look_at_keys(path)]
    fine = path if exists else f"not made yet; it will be {path}"
    data = {"path": path, "exists": exists}
    return [
        places.combine("local.folder", title="folder", fine=fine, findings=findings, data=data),
        _look_at_disk(path, context),
    ]


def _look_at_owner(path: str) -> Iterator[Finding]:
    """As ``rendezvous.prepare_folder`` sees it: that closes the folder to others itself, if it is ours."""
    try:
        status = os.lstat(path)
    except OSError:
        return
    if os.path.islink(path):
        yield places.Finding(check.FAILED, f"{path} is a symbolic link, which is not followed", remedy=_ELSEWHERE)
    elif status.st_uid != os.geteuid():
        text = f"{path} belongs to uid {status.st_uid}, not to us ({os.geteuid()})"
        yield places.Finding(check.FAILED, text, remedy=f"{_ELSEWHERE} Use vmnest as one user, without sudo.")


def _look_at_keys(path: str) -> Iterator[Finding]:
    target = os.path.join(path, rendezvous.KEYS_FILE)
    if not os.path.exists(target):  # made at the first use
        return
    try:
        rendezvous.keys(path)
    except errors.StateFileError as error:
        yield places.Finding(check.FAILED, error.message, remedy=error.hint)
    except OSError as error:
        yield places.Finding(check.FAILED, f"cannot read {target}: {error.strerror}")
    yield from places.look_at_access(target, wanted=0o600)


def _look_at_disk(path: str, context: Context) -> Check:
    free = places.free_bytes(path)
    findings = list(places.look_at_room(path, variable=_VARIABLE))
    data: dict[str, object] = {"free_bytes": free}
    fine = f"{free / 2**30:.1f} GiB free"
    with contextlib.suppress(errors.SettingError):  # told by ``variables``
        most = settings.number("local_disk", environ=context.environ)
        data["sandbox_bytes"] = most
        fine += f"; a sandbox may write {most / 2**30:.1f} GiB"
    return places.combine("local.disk", title="disk space", fine=fine, findings=findings, data=data)


def cloud(context: Context) -> list[Check]:
    """The daemon, what it left if it was killed, and whether programs can be isolated."""
    if not _is_linux():
        return []
    try:
        for name in _ITS_SETTINGS:
            settings.resolve(name, environ=context.environ)
    except errors.SettingError:
        return [_check("isolation", check.SKIPPED, detail="a setting is bad: see settings")]
    path = rendezvous.folder(context.environ)
    try:
        running = daemon.find(context.environ)
    except errors.LocalCloudError as error:
        return [_check("daemon", check.FAILED, detail=error.message, remedy=error.hint)]
    if running is None:
        return [_look_at_absence(path), *_try(path, context)]
    return _ask(running, context)


def _look_at_absence(path: str) -> Check:
    if rendezvous.has_vms(path):
        return _check(
            "daemon",
            check.WARNING,
            detail=f"it was killed, and sandboxes in {path} go on without it",
            remedy="Take them over: vmnest local up\nOr end them: vmnest local down --force",
            data={"running": False, "orphaned": True},
        )
    detail = "not running; it starts by itself on first use"
    return _check("daemon", check.OK, detail=detail, data={"running": False, "orphaned": False})


def _ask(running: rendezvous.Daemon, context: Context) -> list[Check]:
    data = {"running": True, "url": running.url, "pid": running.pid, "version": running.version}
    try:
        told = daemon.ask(
            running,
            method="GET",
            path=rendezvous.STATUS_PATH,
            environ=context.environ,
            deadline=Deadline(context.deadline.clamp(_ASK_SECONDS)),
        )
    except (errors.LocalCloudError, errors.TransportError, errors.StateFileError) as error:
        remedy = error.hint or f"If it stays so: kill {running.pid}"
        return [_check("daemon", check.FAILED, detail=error.message, remedy=remedy, data=data)]
    findings = [
        places.Finding(check.WARNING, note, remedy="Once no sandbox runs: vmnest local down")
        for note in daemon.notes(context.environ)
    ]
    fine = f"running: process {running.pid}, {running.url}, {_count(told)}"
    return [
        places.combine("local.daemon", title=_TITLES["daemon"], fine=fine, findings=findings, data=data),
        _look_at_isolation(told, context),
        _look_at_overlays(told),
        _check("limits", check.SKIPPED, detail=_TRIED, data={}),
    ]


_TRIED = "as the local cloud that runs has it; tried out only while none runs (vmnest ps NAME tells it of a sandbox)"


def _look_at_overlays(told: Mapping[str, object]) -> Check:
    """How the daemon keeps what sandboxes write."""
    writable = told.get("writable")
    if not isinstance(writable, str):  # it is of an older version
        return _check("overlay", check.SKIPPED, detail=_TRIED)
    return _judge_writes(writable, more=", as the local cloud has it")


def _count(told: Mapping[str, object]) -> str:
    states = told.get("microvms")
    counts = states if isinstance(states, dict) else {}
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "no sandbox"


def _look_at_isolation(told: Mapping[str, object], context: Context) -> Check:
    """What the daemon found when it started."""
    isolation = str(told.get("isolation"))
    data = {"isolation": isolation, "driver": told.get("driver")}
    minimum = settings.text("local_isolation", environ=context.environ) or settings.ISOLATIONS[0]
    if isolation not in settings.ISOLATIONS[settings.ISOLATIONS.index(minimum) :]:
        detail = f"the local cloud isolates by {isolation}, and AGENT_SANDBOX_LOCAL_ISOLATION demands {minimum}"
        remedy = "Unset AGENT_SANDBOX_LOCAL_ISOLATION if that is enough."
        return _check("isolation", check.FAILED, detail=detail, remedy=remedy, data=data)
    detail = f"by {isolation}, as the local cloud tried out when it started"
    return _check("isolation", check.OK, detail=detail, data=data)


def _try(path: str, context: Context) -> list[Check]:
    try:
        found = trial.run(path, environ=context.environ, deadline=context.deadline)
    except (errors.LocalCloudError, errors.SettingError, errors.WaitTimeoutError) as error:
        return [_check("isolation", check.FAILED, detail=error.message, remedy=error.hint, data=error.details)]
    detail = f"by {found.get('isolation')}: a sandbox was made, used and removed in {found.get('seconds')} s"
    return [
        _check("isolation", check.OK, detail=detail, data=found),
        _judge_writes(str(found.get("writable"))),
        _judge_limits(found.get("limits")),
    ]


# how writes are kept -> verdict, what it means
_WRITES = {
    "disk": (check.OK, "what sandboxes write is kept in the folder"),
    "memory": (check.WARNING, "what sandboxes write is kept in memory, and images do not work"),
    "bind": (check.WARNING, "there are none: /usr and the like are read-only in sandboxes, and images do not work"),
}
_WRITES_REMEDY = (
    "Set AGENT_SANDBOX_LOCAL_DIR to a folder on ext4, xfs or btrfs, on a machine that has overlayfs for users."
)


def _judge_writes(writable: str, *, more: str = "") -> Check:
    verdict, detail = _WRITES.get(writable, (check.UNKNOWN, writable))
    remedy = None if verdict == check.OK else _WRITES_REMEDY
    return _check("overlay", verdict, detail=f"{detail}{more}", remedy=remedy, data={"writable": writable})


_LIMITS_REMEDY = (
    "For limits that the kernel holds, start the local cloud in a group of its own:\n"
    "systemd-run --user --scope -p Delegate=yes vmnest local up"
)


def _judge_limits(limits: object) -> Check:
    """Without control groups sandboxes work, and their memory is looked at now and then."""
    held = [str(each) for each in limits] if isinstance(limits, list) else []
    if "memory" in held:
        data = {"enforced": "cgroup", "groups": held}
        return _check("limits", check.OK, detail=f"control groups for {', '.join(held)}", data=data)
    detail = "no control group for memory is to be had: it is measured now and then, and may exceed its limit a while"
    data = {"enforced": "watch", "groups": held}
    return _check("limits", check.WARNING, detail=detail, remedy=_LIMITS_REMEDY, data=data)


PROBES = (system, variables, folder, cloud)
