"""Is everything there that sandboxes need? Every precondition with a verdict, and a remedy where it is not met."""

from __future__ import annotations

import os
import threading

from .. import errors, settings
from ..deadline import Deadline
from .checks import check
from .checks.check import Check
from .checks.context import Context

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Probe = Callable[[Context], "list[Check]"]

__all__ = ["DIAGNOSE_SECONDS", "diagnose"]

DIAGNOSE_SECONDS = 30.0
# Probes bound their waits by the deadline themselves; one that has just come to it gets as much to say so.
GRACE_SECONDS = 2.0


def diagnose(
    *, local: bool | None = None, region: str | None = None, timeout: float = DIAGNOSE_SECONDS
) -> dict[str, object]:
    """Look at everything that sandboxes need, and say what is missing and what to do about it. Changes nothing.

    ``ready`` is about the target that commands would use; it is false if any check of that target, of this machine or
    of the state files has failed, or did not come to its end. On this machine (``local``) AWS is not looked at, and its
    ``ready`` is null.

    Args:
        local: True: whether sandboxes can be made on this machine; False: on AWS; by default what AGENT_SANDBOX_TARGET
            says, else AWS.
        region: AWS region.
        timeout: Seconds that all of it may take.
    """
    environ = settings.environment()
    context = Context(environ=environ, region=region, cwd=_working_directory(), deadline=Deadline(timeout))
    target = _choose_target(context, local)
    found = run(list_probes(with_aws=target == settings.TARGET_AWS), context)
    ready = {
        settings.TARGET_AWS: _is_ready(found, check.AWS) if target == settings.TARGET_AWS else None,
        settings.TARGET_LOCAL: _is_ready(found, check.LOCAL),
    }
    return {
        "ready": ready[target],
        "target": target,
        "targets": {name: {"ready": value} for name, value in ready.items()},
        "checks": [each.to_wire() for each in found],
    }


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed: then there is nothing in it
        return ""


def _choose_target(context: Context, local: bool | None) -> str:
    if local is not None:
        return settings.TARGET_LOCAL if local else settings.TARGET_AWS
    try:
        return settings.text("target", environ=context.environ) or settings.TARGET_AWS
    except errors.SettingError:
        return settings.TARGET_AWS  # the check of settings fails, and with it both targets


def _is_ready(found: Sequence[Check], area: str) -> bool:
    relevant = [each for each in found if each.area in (check.HOST, check.STATE, area)]
    return not any(each.verdict == check.FAILED or each.data.get("finished") is False for each in relevant)


def list_probes(*, with_aws: bool) -> list[tuple[str, Probe]]:
    """All probes, each with its area, in the order in which people read what they say."""
    from .checks import host, local_cloud, state

    tables: list[tuple[str, Sequence[Probe]]] = [
        (check.HOST, host.PROBES),
        (check.STATE, state.PROBES),
        (check.LOCAL, local_cloud.PROBES),
    ]
    if with_aws:
        tables += _aws_tables()
    return [(area, probe) for area, probes in tables for probe in probes]


def _aws_tables() -> list[tuple[str, Sequence[Probe]]]:
    """The probes of AWS, which load its models and the transport."""
    from .checks import choices, credentials, permissions, quotas, services

    return [(check.AWS, module.PROBES) for module in (services, credentials, choices, permissions, quotas)]


def run(probes: Sequence[tuple[str, Probe]], context: Context) -> list[Check]:
    """What the probes say, in their order, however long each takes. They run at the same time."""
    running = [_Running(area, probe, context) for area, probe in probes]
    for each in running:
        each.start()
    patience = Deadline(None if context.deadline.seconds is None else context.deadline.seconds + GRACE_SECONDS)
    return [one for each in running for one in each.wait(patience)]


class _Running:
    """A probe in a thread of its own. One that hangs is left behind: nobody waits for it at the process's end."""

    def __init__(self, area: str, probe: Probe, context: Context) -> None:
        self._area = area
        self._probe = probe
        self._context = context
        self._found: list[Check] | None = None
        self._thread = threading.Thread(target=self._run, name=f"vmnest-{probe.__name__}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found = self._probe(self._context)
        except ImportError as error:  # the check of that library names the remedy
            self._found = [self._say(check.SKIPPED, f"{_name_library(error)} is not there to look with")]
        except errors.VmnestError as error:
            self._found = [self._say(check.UNKNOWN, error.message, remedy=error.hint)]
        except Exception as error:  # the last line of a thread: whatever it is, the other checks are to be shown
            self._found = [self._say(check.UNKNOWN, f"{type(error).__name__}: {error}")]

    def wait(self, patience: Deadline) -> list[Check]:
        """What it found, or that it did not come to an end."""
        self._thread.join(patience.remaining())
        if self._found is not None:
            return self._found
        return [self._say(check.UNKNOWN, f"not found out within {self._context.deadline.seconds:g} s")]

    def _say(self, verdict: str, detail: str, *, remedy: str | None = None) -> Check:
        name = self._probe.__name__
        return Check(
            f"{self._area}.{name}",
            title=name.replace("_", " "),
            verdict=verdict,
            detail=detail,
            remedy=remedy,
            data={"finished": False},
        )


def _name_library(error: ImportError) -> str:
    """What is missing. Whoever waits for another thread's import that fails is told of one of our own modules."""
    package = __name__.removesuffix(".ops.doctor")
    name = error.name or package
    return "a library" if name == package or name.startswith(f"{package}.") else name
