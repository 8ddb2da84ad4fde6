"""What cannot be had is refused before anything is recorded or started."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.fake_control import WISH, FakeControl, FakePlace
from vmnest import errors
from vmnest.control.microvms import IdlePolicy
from vmnest.sandbox import wishes

HTTP_ARN = "arn:aws:lambda:eu-west-1:aws:network-connector:aws-network-connector:HTTP_INGRESS"
VPC_ARN = "arn:aws:lambda:eu-west-1:111122223333:network-connector:nc-0000"

# What Python takes for a whole number or a truth value, and its types do not.
HALF: Any = 60.0
ONE: Any = 1


def check(**changes: Any) -> None:
    place: Any = FakePlace(FakeControl("https://vm.example"))
    wishes.check(WISH._replace(**changes), place=place)


def arns(**changes: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return wishes.connector_arns(WISH._replace(**{"egress": (), **changes}), region="eu-west-1")


@pytest.mark.parametrize(
    "change",
    [{}, {"idle_policy": IdlePolicy(60, 0, False)}, {"idle_policy": IdlePolicy(28_800, 28_800)},
     {"maximum_duration_seconds": 1}, {"maximum_duration_seconds": 28_800},
     {"run_payload": ""}, {"run_payload": "x" * 4096}, {"run_payload": "ä" * 2048}, {"run_payload": "\0\n\""},
     {"log_group": "/aws/x"}, {"image_version": "1.0"}, {"cpus": 0.1, "memory_mib": 300}],
    ids=lambda change: str(change)[:60],
)  # fmt: skip
def test_what_can_be_had_passes(change: dict[str, Any]) -> None:
    check(**change)


@pytest.mark.parametrize(
    ("change", "member"),
    [({"idle_policy": 900}, "idle_policy"),
     ({"idle_policy": (60, 0, True)}, "idle_policy"),
     ({"idle_policy": IdlePolicy(59)}, "max_idle_duration_seconds .* 60 to 28800: 59"),
     ({"idle_policy": IdlePolicy(28_801)}, "max_idle_duration_seconds"),
     ({"idle_policy": IdlePolicy(HALF)}, "whole number"),
     ({"idle_policy": IdlePolicy(60, -1)}, "suspended_duration_seconds .* 0 to 28800: -1"),
     ({"idle_policy": IdlePolicy(60, 28_801)}, "suspended_duration_seconds"),
     ({"idle_policy": IdlePolicy(60, True)}, "suspended_duration_seconds"),
     ({"idle_policy": IdlePolicy(60, 0, ONE)}, "auto_resume_enabled"),
     ({"maximum_duration_seconds": 0}, "maximum_duration .* 1 to 28800: 0"),
     ({"maximum_duration_seconds": 28_801}, "maximum_duration"),
     ({"maximum_duration_seconds": 60.0}, "maximum_duration"),
     ({"maximum_duration_seconds": True}, "maximum_duration"),
     ({"labels": {"a": 1}}, "'a'=1"), ({"labels": {1: "a"}}, "1='a'"), ({"labels": ["a"]}, "labels"),
     ({"log_group": ""}, "log_group"), ({"log_group": 1}, "log_group"),
     ({"image_version": 1.0}, "image_version"), ({"image_version": ""}, "image_version"),
     ({"agent_port": 0}, "port"), ({"agent_port": 70_000}, "port"), ({"agent_port": True}, "port"),
     ({"agent_port": 9000}, "hooks"),
     ({"cpus": 0}, "cpus"), ({"cpus": -1}, "cpus"), ({"cpus": True}, "cpus"), ({"cpus": "1"}, "cpus"),
     ({"cpus": float("nan")}, "cpus"), ({"cpus": float("inf")}, "cpus"), ({"cpus": 3000}, "cpus"),
     ({"memory_mib": 0}, "memory"), ({"memory_mib": 1.5}, "memory"), ({"memory_mib": True}, "memory"),
     ({"memory_mib": "512"}, "memory")],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_by_name(change: dict[str, Any], member: str) -> None:
    with pytest.raises(errors.UsageError, match=member):
        check(**change)


@pytest.mark.parametrize("payload", ["secret" * 683, "ä" * 2049, "secret\udcff", b"secret", 1], ids=repr)
def test_a_payload_that_cannot_be_passed_is_refused_and_not_quoted(payload: Any) -> None:
    with pytest.raises(errors.UsageError, match="run_payload") as caught:
        check(run_payload=payload)
    assert "secret" not in f"{caught.value} {caught.value.hint} {caught.value.__cause__}"


def test_a_payload_that_is_too_long_tells_its_size_in_bytes() -> None:
    with pytest.raises(errors.UsageError, match=r"has 4098 bytes .* 4096"):
        check(run_payload="ä" * 2049)


def test_no_representation_of_a_wish_shows_its_payload() -> None:
    assert "hush" not in repr(WISH._replace(run_payload="hush"))


# -- connectors --------------------------------------------------------------------------------------------------------


def test_no_connectors_are_the_services_defaults() -> None:
    assert arns() == ((), ())


def test_names_of_managed_connectors_become_arns_of_the_region_in_use() -> None:
    ingress, egress = arns(ingress=["HTTP_INGRESS", "SHELL_INGRESS"], egress=["INTERNET_EGRESS"])
    assert ingress == (HTTP_ARN, HTTP_ARN.replace("HTTP", "SHELL"))
    assert egress == (HTTP_ARN.replace("HTTP_INGRESS", "INTERNET_EGRESS"),)


def test_arns_are_taken_as_they_are() -> None:
    assert arns(ingress=[HTTP_ARN], egress=[VPC_ARN]) == ((HTTP_ARN,), (VPC_ARN,))
    assert arns(ingress=[VPC_ARN]) == ((VPC_ARN,), ())
    assert arns(ingress=["ALL_INGRESS"])[0] == (HTTP_ARN.replace("HTTP", "ALL"),)


@pytest.mark.parametrize(
    "ingress",
    [["NO_INGRESS"], ["SHELL_INGRESS"], ["NO_INGRESS", "SHELL_INGRESS"], [HTTP_ARN.replace("HTTP", "NO")]],
    ids=str,
)
def test_an_ingress_through_which_the_agent_cannot_be_reached_is_refused(ingress: list[str]) -> None:
    with pytest.raises(errors.UsageError, match="could not be reached") as caught:
        arns(ingress=ingress)
    assert "HTTP_INGRESS" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "change",
    [{"ingress": "HTTP_INGRESS"}, {"egress": HTTP_ARN}, {"egress": [None]}, {"ingress": ["http"]},
     {"egress": ["HTTP_INGRESS"]}, {"ingress": ["INTERNET_EGRESS"]}, {"egress": ["NO_EGRESS"]}, {"ingress": [""]},
     {"egress": ["INTERNET_EGRESS", VPC_ARN]}],
    ids=str,
)  # fmt: skip
def test_connectors_that_there_are_not_or_too_many_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(errors.UsageError):
        arns(**change)


# -- what may be reached -----------------------------------------------------------------------------------------------


def reaching(*, is_local: bool, **changes: Any) -> tuple[list[str], list[str]]:
    wish = wishes.with_egress(WISH._replace(**{"egress": (), **changes}), is_local=is_local)
    return list(wish.egress), list(wish.egress_allow)


def test_a_local_sandbox_reaches_what_is_allowed() -> None:
    assert reaching(is_local=True) == ([], [])
    allowed = ["PyPI.org", "*.pythonhosted.org", "pypi.org", "10.0.0.1:8080"]
    assert reaching(is_local=True, egress_allow=allowed)[1] == ["pypi.org", "*.pythonhosted.org", "10.0.0.1:8080"]


@pytest.mark.parametrize("connector", ["INTERNET_EGRESS", HTTP_ARN.replace("HTTP_INGRESS", "INTERNET_EGRESS")])
def test_the_connector_to_the_internet_opens_a_local_sandbox_as_well(connector: str) -> None:
    assert reaching(is_local=True, egress=(connector,)) == ([connector], ["internet"])
    assert reaching(is_local=True, egress=(connector,), egress_allow=["a.example:1"])[1] == ["a.example:1", "internet"]


def test_another_connector_opens_no_local_sandbox() -> None:
    assert reaching(is_local=True, egress=(VPC_ARN,)) == ([VPC_ARN], [])


def test_on_aws_the_internet_is_a_connector() -> None:
    assert reaching(is_local=False, egress_allow=["internet"]) == (["INTERNET_EGRESS"], [])
    assert reaching(is_local=False, egress_allow=["internet"], egress=["INTERNET_EGRESS"])[0] == ["INTERNET_EGRESS"]
    assert reaching(is_local=False, egress=[VPC_ARN]) == ([VPC_ARN], [])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"egress_allow": ["pypi.org"]}, "on AWS a sandbox cannot be held to pypi.org"),
        ({"egress_allow": ["internet", "a.example", "b.example"]}, "cannot be held to a.example and b.example"),
        ({"egress_allow": ["internet"], "egress": [VPC_ARN]}, "another egress connector is given"),
    ],
)
def test_what_aws_has_not_is_refused_and_says_what_there_is(change: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.UsageError, match=message) as caught:
        reaching(is_local=False, **change)
    assert "VPC" in str(caught.value.hint)


@pytest.mark.parametrize("is_local", [True, False])
@pytest.mark.parametrize("allowed", ["pypi.org", ["http://pypi.org/"], ["*"], [1], [""]])
def test_what_is_no_list_of_hosts_is_refused(allowed: Any, is_local: bool) -> None:
    with pytest.raises(errors.UsageError):
        reaching(is_local=is_local, egress_allow=allowed)
