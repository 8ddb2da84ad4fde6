"""What a sandbox uses, as shares of its limits."""

from __future__ import annotations

import pytest

from vmnest.agent.stats import Disk, Memory, Stats
from vmnest.sandbox import shares

MIB = 2**20
SEEN = Stats(
    cpus=4.0,
    cpu_percent=12.5,
    memory=Memory(8000 * MIB, 100 * MIB, 7000 * MIB),
    disk=Disk(50_000 * MIB, 20_000 * MIB, 30_000 * MIB),
)


@pytest.mark.parametrize(
    ("cpus", "enforced", "seen"),
    [
        (2, "cgroup", (2.0, 25.0)),
        (0.5, "cgroup", (0.5, 100.0)),
        (0.25, "cgroup", (0.25, 100.0)),
        (0.5, "watch", (1.0, 50.0)),
        (1.5, "watch", (2.0, 25.0)),
        (4, "cgroup", (4.0, 12.5)),
        (8, "cgroup", (4.0, 12.5)),
        (None, "cgroup", (4.0, 12.5)),
    ],
)
def test_the_share_of_the_cpus_is_that_of_those_that_it_may_use(
    cpus: float | None, enforced: str, seen: tuple[float, float]
) -> None:
    found = shares.limited(SEEN, {"cpus": cpus, "enforced": enforced})
    assert (found.cpus, found.cpu_percent) == seen
    assert found._replace(cpus=4.0, cpu_percent=12.5) == SEEN


def test_memory_is_what_it_may_have() -> None:
    assert shares.limited(SEEN, {"memory": 512}).memory == Memory(512 * MIB, 100 * MIB, 412 * MIB)
    assert shares.limited(SEEN, {"memory": 64}).memory == Memory(64 * MIB, 100 * MIB, 0)
    assert shares.limited(SEEN, {"memory": 9000}) == SEEN


def test_of_a_disk_that_others_use_too_nobody_has_counted_the_part() -> None:
    assert shares.limited(SEEN, {"disk": 8192}).disk == Disk(8192 * MIB, None, 8192 * MIB)
    assert shares.limited(SEEN, {"disk": 40_000}).disk == Disk(40_000 * MIB, None, 30_000 * MIB)
    own = SEEN._replace(disk=Disk(8192 * MIB, 5, 6))
    assert shares.limited(own, {"disk": 8192}) == own  # it is its own: a tmpfs


@pytest.mark.parametrize("details", [None, "x", {}, {"cpus": "2", "memory": True, "disk": -1}, {"cpus": float("nan")}])
def test_what_makes_no_sense_limits_nothing(details: object) -> None:
    assert shares.limited(SEEN, details) == SEEN


def test_what_is_not_known_stays_so() -> None:
    assert shares.limited(Stats(), {"cpus": 1, "memory": 1, "disk": 1}) == Stats()
