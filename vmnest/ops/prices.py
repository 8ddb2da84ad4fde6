"""What AWS asks for MicroVMs: the one table of prices, and what follows from a size.

The prices are those that AWS published for Lambda MicroVMs on ARM in us-east-1, as they were in September 2026; a month
has 720 hours. A MicroVM that runs is billed by the second for the memory of its image version, its baseline, and for
the CPUs that go with that; what it uses beyond, up to four times as much, is billed on top. One that is suspended is
storage only. There is no fee for a request and no free tier.

All amounts are US dollars, and exact: ``Decimal``.
"""

from __future__ import annotations

from decimal import Decimal

__all__ = [
    "AS_OF",
    "CURRENCY",
    "HOURS_PER_MONTH",
    "LEAST_STORED_DAYS",
    "REGION",
    "TABLE",
    "Range",
    "running_second",
    "snapshot_read",
    "stored_month",
    "suspended_second",
]

AS_OF = "2026-09"
REGION = "us-east-1"
CURRENCY = "USD"

TABLE = {
    "vcpu_second": Decimal("0.0000276944"),
    "gb_second": Decimal("0.0000036667"),
    "snapshot_read_gb": Decimal("0.00155"),  # at every launch and resume
    "snapshot_write_gb": Decimal("0.0038"),  # at every suspend
    "snapshot_stored_gb_hour": Decimal("0.0001111111"),  # of image versions and of what is suspended
}
HOURS_PER_MONTH = 720
LEAST_STORED_DAYS = 7  # an image version that is deleted sooner is billed for so long

MIB_PER_GB = 1024
MIB_PER_VCPU = 2048  # a baseline of 2 GB goes with one CPU, one of 512 MiB with a quarter
PEAK = 4  # a MicroVM may use four times its baseline
LEAST_DISK_GB = 8  # it is as large as the memory at the peak from 4 GB on, and never smaller than this

_HOUR = 3600
_BYTES_PER_GB = 2**30


class Range:
    """What an amount lies between, both ends included. A value."""

    __slots__ = ("high", "low")

    def __init__(self, low: Decimal | int = 0, high: Decimal | int | None = None) -> None:
        self.low = Decimal(low)
        self.high = self.low if high is None else Decimal(high)

    def __repr__(self) -> str:
        return f"Range({self.low}, {self.high})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Range) and (self.low, self.high) == (other.low, other.high)

    def __hash__(self) -> int:
        return hash((self.low, self.high))

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def times(self, factor: Decimal | int) -> Range:
        """So many of it; ``factor`` is not negative."""
        return Range(self.low * factor, self.high * factor)

    def to_json(self) -> dict[str, float]:
        """Both ends in dollars, to the billionth."""
        return {"low": round(float(self.low), 9), "high": round(float(self.high), 9)}


def running_second(memory_mib: int) -> Decimal:
    """A second of running, of a MicroVM with this baseline that keeps to it."""
    gb, cpus = Decimal(memory_mib) / MIB_PER_GB, Decimal(memory_mib) / MIB_PER_VCPU
    return cpus * TABLE["vcpu_second"] + gb * TABLE["gb_second"]


def suspended_second(memory_mib: int) -> Range:
    """A second of being suspended. Nobody tells how large that snapshot is: at most all its memory and its disk."""
    memory = Decimal(memory_mib * PEAK) / MIB_PER_GB
    disk = max(memory, Decimal(LEAST_DISK_GB))  # 8 GB for a baseline of up to 2048 MiB, 16 for 4096, 32 for 8192
    return Range(0, (memory + disk) * TABLE["snapshot_stored_gb_hour"] / _HOUR)


def snapshot_read(size_bytes: Range) -> Range:
    """Reading a snapshot of that size, as a launch does."""
    return size_bytes.times(TABLE["snapshot_read_gb"] / _BYTES_PER_GB)


def stored_month(size_bytes: Range) -> Range:
    """Keeping a snapshot of that size for a month."""
    return size_bytes.times(TABLE["snapshot_stored_gb_hour"] * HOURS_PER_MONTH / _BYTES_PER_GB)
