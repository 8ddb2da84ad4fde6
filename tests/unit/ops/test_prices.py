"""The table of prices, held to amounts that were worked out by hand."""

from __future__ import annotations

from decimal import Decimal

import pytest

from vmnest.ops import prices
from vmnest.ops.prices import Range
from vmnest.sandbox import launch

GIB = 2**30


@pytest.mark.parametrize(
    ("memory_mib", "dollars_an_hour"),
    [
        # 0.25 CPU x 3600 x 0.0000276944 = 0.02492496, and 0.5 GB x 3600 x 0.0000036667 = 0.00660006
        (512, "0.03152502"),
        (1024, "0.06305004"),
        # 1 CPU: 0.09969984, and 2 GB: 0.02640024
        (2048, "0.12610008"),
        (8192, "0.50440032"),
    ],
)
def test_an_hour_of_running_costs_what_its_cpus_and_its_memory_cost(memory_mib: int, dollars_an_hour: str) -> None:
    assert prices.running_second(memory_mib) * 3600 == Decimal(dollars_an_hour)


@pytest.mark.parametrize(
    ("memory_mib", "most_gb"),
    [(512, 2 + 8), (1024, 4 + 8), (2048, 8 + 8), (4096, 16 + 16), (8192, 32 + 32)],
)
def test_suspended_it_costs_at_most_the_storage_of_all_its_memory_and_its_disk(memory_mib: int, most_gb: int) -> None:
    hour = prices.suspended_second(memory_mib).times(3600)
    assert hour.low == 0
    assert round(hour.high, 12) == most_gb * Decimal("0.0001111111")


def test_running_always_costs_more_than_being_suspended() -> None:
    for memory_mib in (512, 1024, 2048, 4096, 8192):
        assert prices.running_second(memory_mib) > prices.suspended_second(memory_mib).high


def test_a_snapshot_costs_by_its_size() -> None:
    assert prices.snapshot_read(Range(GIB, 2 * GIB)) == Range(Decimal("0.00155"), Decimal("0.0031"))
    month = prices.stored_month(Range(GIB, 10 * GIB))
    assert (round(month.low, 6), round(month.high, 6)) == (Decimal("0.08"), Decimal("0.8"))


def test_the_cpus_are_those_that_a_launch_counts_with() -> None:
    assert prices.MIB_PER_VCPU == prices.PEAK * launch.MEMORY_MIB_PER_PEAK_CPU


def test_ranges_add_up_end_by_end() -> None:
    one, other = Range(1, 2), Range(Decimal("0.5"))
    assert one + other == Range(Decimal("1.5"), Decimal("2.5"))
    assert one.times(3) == Range(3, 6)
    assert (one != other, one == "1 to 2", len({one, Range(1, 2)})) == (True, False, 1)
    assert repr(one) == "Range(1, 2)"


def test_json_has_dollars_to_the_billionth() -> None:
    assert Range(0, Decimal("0.12610008049")).to_json() == {"low": 0.0, "high": 0.12610008}
