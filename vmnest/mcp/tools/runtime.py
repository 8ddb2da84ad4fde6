"""Is there what sandboxes need, and what to do where it is missing."""

from __future__ import annotations

from ...ops import doctor, provision
from .tool import Tool

__all__ = ["TOOLS"]


def runtime_check(*, local: bool | None = None) -> dict[str, object]:
    """Check all that sandboxes need: settings, isolation, credentials, permissions, image, role. Changes nothing.

    For when a tool fails and its hint does not help. Takes up to 30 seconds.

    Args:
        local: true: here; false: AWS. Best left out.

    Returns:
        ready, target, checks: of each verdict (ok, warning, failed, unknown, skipped), detail, remedy.
    """
    return doctor.diagnose(local=local)


def runtime_install(*, local: bool | None = None) -> dict[str, object]:
    """Tell the steps for the user that are missing until sandboxes can be made. Does none of them.

    Args:
        local: true: here; false: AWS. Best left out.

    Returns:
        ready, target, steps: of each detail (why), required, do (what).
    """
    return provision.list_steps(local=local)


TOOLS = (
    Tool(runtime_check, title="Check the runtime", reads=True),
    Tool(runtime_install, title="Explain how to set up", reads=True),
)
