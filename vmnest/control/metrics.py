"""CloudWatch's figures of a MicroVM, where there are any.

The names below are those of the system that this one follows. AWS documents no such figures, and nobody has seen any;
so that none is the usual answer, and never a failure. What there is comes a minute late, once a minute.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from ..aws.service import Service
from ..deadline import Deadline
from . import answers

__all__ = ["METRICS", "PERIOD_SECONDS", "SERVICE", "Figure", "latest"]

SERVICE = "cloudwatch"
NAMESPACE = "AWS/LambdaMicroVMs"
DIMENSION = "MicrovmId"
METRICS = ("CPUUtilization", "MemoryUtilization")
PERIOD_SECONDS = 60
LOOK_BACK = timedelta(minutes=30)
CLOCK_MARGIN = timedelta(minutes=15)  # by so much this machine's clock may be wrong
_OPERATION = "GetMetricStatistics"
_STATISTIC = "Average"


class Figure(NamedTuple):
    """The average over a minute.

    Attributes:
        value: The figure.
        unit: In CloudWatch's word: ``Percent``.
        at: When that minute began.
    """

    value: float
    unit: str | None
    at: datetime


def latest(
    service: Service, microvm_id: str, *, deadline: Deadline, now: datetime | None = None
) -> dict[str, Figure | None]:
    """The latest figure of each of METRICS; None of those that CloudWatch has none of.

    Args:
        service: CloudWatch.
        microvm_id: Of the MicroVM.
        deadline: When to stop.
        now: The time.

    Raises:
        errors.AccessDeniedError: the credentials may not read figures (cloudwatch:GetMetricStatistics).
    """
    moment = datetime.now(timezone.utc) if now is None else now
    return {name: _latest(service, name, microvm_id, deadline=deadline, now=moment) for name in METRICS}


def _latest(service: Service, name: str, microvm_id: str, *, deadline: Deadline, now: datetime) -> Figure | None:
    answer = service.call(
        _OPERATION,
        {
            "Namespace": NAMESPACE,
            "MetricName": name,
            "Dimensions": [{"Name": DIMENSION, "Value": microvm_id}],
            "StartTime": now - LOOK_BACK - CLOCK_MARGIN,
            "EndTime": now + CLOCK_MARGIN,
            "Period": PERIOD_SECONDS,
            "Statistics": [_STATISTIC],
        },
        deadline=deadline,
    )
    return max(_figures(answer), key=lambda figure: figure.at, default=None)  # they come in any order


def _figures(answer: answers.Answer) -> Iterator[Figure]:
    for point in answers.find(answer, "Datapoints", list, operation=_OPERATION) or ():
        if not isinstance(point, Mapping):
            continue
        value, at, unit = point.get(_STATISTIC), point.get("Timestamp"), point.get("Unit")
        if isinstance(value, float) and math.isfinite(value) and isinstance(at, datetime):
            yield Figure(value, unit if isinstance(unit, str) else None, at)
