"""What the account may have, and how much of it is in use."""

from __future__ import annotations

import pytest

from tests.support.checks import by_id, make_context
from tests.support.peers import Request, json_answer
from tests.support.scripted_aws import (
    Said,
    ScriptedAws,
    denied,
    image_item,
    microvm,
    refusal,
    version,
)
from vmnest.ops.checks import FAILED, OK, SKIPPED, UNKNOWN, WARNING, Check, quotas


def look(aws: ScriptedAws, **changes: str) -> dict[str, Check]:
    """What is said of the quotas."""
    context = make_context({**aws.environ, **changes})
    found = by_id(each for probe in quotas.PROBES for each in probe(context))
    return {name.rpartition(".")[2]: each for name, each in found.items()}


def allow(aws: ScriptedAws, **values: float) -> None:
    """Let Service Quotas tell these, on two pages."""
    items = [{"QuotaCode": code.replace("_", "-"), "Value": value} for code, value in values.items()]

    def answer(request: Request) -> Said:
        if b"NextToken" in request.body:
            return json_answer(200, {"Quotas": items})
        return json_answer(200, {"Quotas": [{"QuotaCode": "L-OTHER", "Value": 1.0}], "NextToken": "more"})

    aws.answers["ListServiceQuotas"] = answer


def run(aws: ScriptedAws, *microvms: dict[str, object], sizes: dict[str, int | None] | None = None) -> None:
    """Let these MicroVMs be listed, on two pages of which the first one is empty."""

    def answer(request: Request) -> Said:
        if "maxResults=1" in request.target or "nextToken" in request.target:
            return json_answer(200, {"items": list(microvms), "nextToken": None})
        return json_answer(200, {"items": [], "nextToken": "more"})

    def size(request: Request) -> Said:
        number = request.target.rpartition("/")[2]
        return json_answer(200, version(number, memory=(sizes or {}).get(number, 512)))

    aws.answers.update(ListMicrovms=answer, GetMicrovmImageVersion=size)


@pytest.mark.parametrize(("region", "gigabytes", "builds"), [("us-east-1", 1024, 10), ("eu-west-1", 400, 5)])
def test_the_published_defaults_are_said_to_be_such(
    scripted_aws: ScriptedAws, region: str, gigabytes: int, builds: int
) -> None:
    scripted_aws.answers["ListServiceQuotas"] = denied("servicequotas:ListServiceQuotas")
    found = look(scripted_aws, AGENT_SANDBOX_REGION=region)
    assert {each.verdict for each in found.values()} == {OK}
    assert f"of {gigabytes} GB (AWS's published default); accounts that are new have less" in found["memory"].detail
    assert (found["memory"].data["limit_gb"], found["memory"].data["is_default"]) == (gigabytes, True)
    assert "servicequotas:ListServiceQuotas is not allowed" in found["rates"].detail
    assert f"concurrent builds {builds}" in found["rates"].detail


def test_the_account_s_own_values_come_first(scripted_aws: ScriptedAws) -> None:
    allow(scripted_aws, L_CD1C0CC4=8.0, L_535CA9B6=1.0)
    found = look(scripted_aws)
    assert found["memory"].detail == "0 GB in use by 0 MicroVMs of 8 GB (of this account)"
    assert "run rate 1/s" in found["rates"].detail
    assert found["rates"].data["run_rate"] == {"value": 1.0, "code": "L-535CA9B6", "is_default": False}
    assert found["images"].data["is_default"] is True


def test_service_quotas_that_does_not_answer_costs_its_values_only(scripted_aws: ScriptedAws) -> None:
    scripted_aws.answers["ListServiceQuotas"] = refusal(400, "NoSuchResourceException")
    found = look(scripted_aws)
    assert {each.verdict for each in found.values()} == {OK}
    assert "Service Quotas does not answer" in found["rates"].detail


def test_each_quota_has_a_code_of_its_own() -> None:
    codes = [quota.code for quota in quotas.QUOTAS]
    assert len(set(codes)) == len(codes) == 19
    assert len({quota.name for quota in quotas.QUOTAS}) == len(codes)


# -- memory ------------------------------------------------------------------------------------------------------------


def test_memory_in_use_is_that_of_all_that_have_not_ended(scripted_aws: ScriptedAws) -> None:
    states = ("RUNNING", "SUSPENDED", "PENDING", "TERMINATED", "TERMINATING")
    run(scripted_aws, *(microvm(number, state=state) for number, state in enumerate(states)))
    found = look(scripted_aws)["memory"]
    assert found.data["microvms"] == 3
    assert found.data["used_gb"] == 1.5
    assert "1.5 GB in use by 3 MicroVMs" in found.detail
    assert scripted_aws.asked.count("GetMicrovmImageVersion") == 1, "one version, one size"


def test_a_version_that_does_not_tell_its_size_has_the_usual_one(scripted_aws: ScriptedAws) -> None:
    run(scripted_aws, microvm(1), microvm(2, version="2.0"), sizes={"1.0": 8192, "2.0": None})
    found = look(scripted_aws)["memory"].data
    assert (found["used_gb"], found["of_assumed_size"], found["is_complete"]) == (10.0, 1, True)


@pytest.mark.parametrize(
    ("limit", "verdict"),
    [(2.0, FAILED), (1.9, FAILED), (2.4, WARNING), (4.0, OK)],
    ids=["all", "more", "nearly", "half"],
)
def test_memory_that_is_used_up_stops_new_sandboxes(scripted_aws: ScriptedAws, limit: float, verdict: str) -> None:
    run(scripted_aws, *(microvm(number) for number in range(4)))
    allow(scripted_aws, L_CD1C0CC4=limit)
    found = look(scripted_aws)["memory"]
    assert found.verdict == verdict
    assert (found.remedy is None) is (verdict == OK)
    assert "vmnest ls --all" in str(found.remedy) or verdict == OK


def test_of_a_default_nobody_knows_whether_it_is_used_up(scripted_aws: ScriptedAws) -> None:
    run(scripted_aws, microvm(1), sizes={"1.0": 2 * 1024 * 1024})
    assert look(scripted_aws)["memory"].verdict == WARNING


def test_a_list_that_breaks_off_is_the_least(scripted_aws: ScriptedAws) -> None:
    pages = [json_answer(200, {"items": [microvm(1)], "nextToken": "more"}), refusal(403, "AccessDeniedException")]

    def answer(request: Request) -> Said:
        if "maxResults=1" in request.target:
            return json_answer(200, {"items": []})
        return pages[1] if "nextToken" in request.target else pages[0]

    scripted_aws.answers["ListMicrovms"] = answer
    found = look(scripted_aws)["memory"]
    assert found.detail.startswith("at least 0.5 GB in use by 1 MicroVM of")
    assert found.data["is_complete"] is False


def test_what_may_not_be_listed_is_not_known(scripted_aws: ScriptedAws) -> None:
    scripted_aws.answers.update(ListMicrovms=denied(), ListMicrovmImages=denied())
    found = look(scripted_aws)
    assert (found["memory"].verdict, found["images"].verdict) == (UNKNOWN, UNKNOWN)
    assert "could not be found out" in found["memory"].detail


# -- the rest ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "verdict"), [(79, OK), (80, WARNING), (100, WARNING)])
def test_images_that_are_nearly_too_many_are_a_warning(scripted_aws: ScriptedAws, count: int, verdict: str) -> None:
    items = [{**image_item(), "imageArn": f"{image_item()['imageArn']}-{number}"} for number in range(count)]
    scripted_aws.answers["ListMicrovmImages"] = json_answer(200, {"items": items, "nextToken": None})
    found = look(scripted_aws)["images"]
    assert (found.verdict, found.data["used"]) == (verdict, count)
    assert "vmnest image prune" in str(found.remedy) or verdict == OK


def test_without_keys_no_quota_is_looked_at(scripted_aws: ScriptedAws) -> None:
    found = look(scripted_aws, AWS_SECRET_ACCESS_KEY="")
    assert {each.verdict for each in found.values()} == {SKIPPED}
    assert scripted_aws.asked == []
