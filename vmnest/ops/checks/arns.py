"""ARNs in parts."""

from __future__ import annotations

__all__ = ["Arn", "parse"]


class Arn:
    """``arn:partition:service:region:account:resource``; region and account may be empty."""

    __slots__ = ("account", "partition", "region", "resource", "service")

    def __init__(self, partition: str, service: str, *, region: str, account: str, resource: str) -> None:
        self.partition = partition
        self.service = service
        self.region = region
        self.account = account
        self.resource = resource

    @property
    def last(self) -> str:
        """The name behind the resource's kind and path."""
        return self.resource.replace("/", ":").rpartition(":")[2]


def parse(text: str) -> Arn | None:
    """The parts of an ARN; None if it is none."""
    parts = text.split(":", 5)
    if len(parts) != 6 or parts[0] != "arn" or not all((parts[1], parts[2], parts[5])):
        return None
    return Arn(parts[1], parts[2], region=parts[3], account=parts[4], resource=parts[5])
