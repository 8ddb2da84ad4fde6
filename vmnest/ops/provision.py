"""What is left to do until sandboxes can be made, in the order in which to do it."""

from __future__ import annotations

from .. import settings
from . import doctor

__all__ = ["list_steps"]

_NEEDED = ("failed", "unknown", "warning")  # the worst first


def list_steps(
    *, local: bool | None = None, region: str | None = None, timeout: float = doctor.DIAGNOSE_SECONDS
) -> dict[str, object]:
    """List what to do until sandboxes can be made, from what ``diagnose`` finds. Does nothing itself.

    Args:
        local: True: on this machine; False: on AWS; by default what AGENT_SANDBOX_TARGET says, else AWS.
        region: AWS region.
        timeout: Seconds that looking may take.
    """
    found = doctor.diagnose(local=local, region=region, timeout=timeout)
    checks = found["checks"]
    assert isinstance(checks, list)
    unmet = [each for each in checks if each["verdict"] in _NEEDED and _concerns(each, found["target"])]
    steps = [
        {
            "check": each["id"],
            "title": each["title"],
            "required": each["verdict"] == _NEEDED[0],
            "detail": each["detail"],
            "do": each["remedy"],
        }
        for each in sorted(unmet, key=lambda each: _NEEDED.index(each["verdict"]))
    ]
    return {"ready": found["ready"], "target": found["target"], "targets": found["targets"], "steps": steps}


def _concerns(check: dict[str, object], target: object) -> bool:
    """It is about the target that counts, or about both."""
    return check["area"] not in (settings.TARGET_AWS, settings.TARGET_LOCAL) or check["area"] == target
