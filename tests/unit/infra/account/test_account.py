"""No service is asked before it is wanted, and ARNs are those of the region's part of AWS."""

from __future__ import annotations

import pytest

from tests.support.clock import FakeClock
from tests.support.memory_account import ACCOUNT, MemoryAccount
from vmnest.control import logs
from vmnest.deadline import Deadline
from vmnest.infra.account import Account


def open_account(memory: MemoryAccount, clock: FakeClock, *, kind: str = "aws") -> Account:
    return Account(memory.target(kind=kind), deadline=Deadline(60, clock=clock), clock=clock)  # type: ignore[arg-type]


def test_nothing_is_asked_before_something_is_wanted(fake_clock: FakeClock) -> None:
    memory = MemoryAccount()
    account = open_account(memory, fake_clock)
    assert (account.region, account.is_local, memory.calls) == ("us-east-1", False, [])
    assert open_account(memory, fake_clock, kind="local").is_local


def test_every_service_is_reached(fake_clock: FakeClock) -> None:
    memory = MemoryAccount()
    account = open_account(memory, fake_clock)
    assert account.id == ACCOUNT
    assert account.roles.find("x") is None
    assert account.buckets.find("x") is None
    assert account.network.group("x") is None
    assert list(account.images.list(deadline=account.deadline)) == []
    assert logs.tail(account.logs, "x", image_version="1.0", since=0, deadline=account.deadline, clock=fake_clock) == ()
    assert account.tags is account.tags
    assert account.connectors is account.connectors
    assert {call.partition(".")[0] for call in memory.calls} == {"iam", "s3", "ec2", "lambda-microvms", "logs"}


@pytest.mark.parametrize(
    ("region", "partition"),
    [("us-east-1", "aws"), ("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov"), ("eu-west-1", "aws")],
)
def test_arns_are_of_the_part_of_aws_that_the_region_is_in(fake_clock: FakeClock, region: str, partition: str) -> None:
    assert open_account(MemoryAccount(region=region), fake_clock).partition == partition
