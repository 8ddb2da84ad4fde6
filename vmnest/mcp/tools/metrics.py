"""What sandboxes use."""

from __future__ import annotations

from ...ops import metrics
from . import attendance
from .tool import Tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..calls import Call

__all__ = ["TOOLS"]


def sandbox_metrics(*, name: str) -> dict[str, object]:
    """Show what a sandbox uses now: CPU, memory, disk, network, processes. Wakes none.

    Args:
        name: Sandbox.

    Returns:
        state, metrics, agent and cloudwatch: figures, or the reason for none.
    """
    return metrics.sandbox_metrics(name=name)


def sandbox_metrics_all() -> dict[str, object]:
    """Show what each sandbox uses now. Wakes none.

    Returns:
        sandboxes, each as of sandbox_metrics, or with an error.
    """
    return metrics.all_metrics()


def sandbox_metrics_stream(*, name: str, samples: int = 5, interval_ms: int = 60_000, call: Call) -> dict[str, object]:
    """Collect samples of what a sandbox uses. That keeps it awake. Answers within 45 seconds: if remaining is not 0,
    call it again after continue_after_ms, with samples=remaining.

    Args:
        name: Sandbox.
        samples: How many, 1 to 60.
        interval_ms: Milliseconds from one to the next, at least 100.

    Returns:
        samples {at, state, metrics}, remaining, continue_after_ms.
    """

    def on_sample(count: int) -> None:
        call.check()
        call.progress(count, total=samples, message=f"{count} of {samples} samples")

    return metrics.sandbox_metrics_stream(
        name=name, samples=samples, interval_ms=interval_ms, patience=attendance.MOST_SECONDS, on_sample=on_sample
    )


TOOLS = (
    Tool(sandbox_metrics, title="Show what a sandbox uses", reads=True),
    Tool(sandbox_metrics_all, title="Show what all sandboxes use", reads=True),
    Tool(sandbox_metrics_stream, title="Watch what a sandbox uses", reads=True),
)
