"""One thing that was looked at, and what is to be said of it."""

from __future__ import annotations

from ... import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AREAS", "FAILED", "OK", "SKIPPED", "UNKNOWN", "VERDICTS", "WARNING", "Check"]

OK = "ok"
WARNING = "warning"  # it works, and is not as it should be
FAILED = "failed"  # the target is not ready
UNKNOWN = "unknown"  # it could not be found out
SKIPPED = "skipped"  # it was not looked at, for the reason in the detail
VERDICTS = (OK, WARNING, FAILED, UNKNOWN, SKIPPED)

HOST, STATE, LOCAL, AWS = "host", "state", "local", "aws"
AREAS = (HOST, STATE, LOCAL, AWS)


class Check:
    """What was found of one precondition. A value.

    Args:
        name: Its id, ``area.name``: for programs, and stable.
        title: A few words for people.
        verdict: One of ``VERDICTS``. Only ``failed`` makes a target count as not ready.
        detail: What was found, in one line.
        remedy: What to do about it; of several lines each is a step or a command.
        data: Further facts for programs (plain JSON values).
    """

    __slots__ = ("data", "detail", "id", "remedy", "title", "verdict")

    def __init__(
        self,
        name: str,
        *,
        title: str,
        verdict: str,
        detail: str,
        remedy: str | None = None,
        data: Mapping[str, object] | None = None,
    ) -> None:
        assert name.partition(".")[0] in AREAS
        assert verdict in VERDICTS
        self.id = name
        self.title = title
        self.verdict = verdict
        self.detail = errors.redact(detail)
        self.remedy = None if remedy is None else errors.redact(remedy)
        self.data = dict(data or {})

    def __repr__(self) -> str:
        return f"Check({self.id!r}, {self.verdict}: {self.detail})"

    @property
    def area(self) -> str:
        """One of ``AREAS``: what it is a precondition of; ``host`` and ``state`` are of both targets."""
        return self.id.partition(".")[0]

    def to_wire(self) -> dict[str, object]:
        """As a member of ``--json``."""
        return {
            "id": self.id,
            "area": self.area,
            "title": self.title,
            "verdict": self.verdict,
            "detail": self.detail,
            "remedy": self.remedy,
            "data": errors.redact_all(self.data),
        }
