"""The cost of sandboxes and images, with an account whose service answers by what is asked for."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from tests.support import notes
from tests.support.costs import MIB, Account, microvm
from vmnest import errors, registry, rendezvous
from vmnest.ops import cost
from vmnest.registry import Record

HOUR = 0.12610008  # of running with 2048 MiB
# A snapshot of 512 to 800 MiB is read at a start, and 512 to 1492 MiB are stored, at $0.08 for a GB and month.
LEAST_START, MOST_START = 0.5 * 0.00155, 800 / 1024 * 0.00155
LEAST_STORED, MOST_STORED = 0.04, 1492 / 1024 * 0.08


def put(account: Account, name: str, **members: object) -> None:
    """A sandbox with a MicroVM."""
    account.microvms[f"microvm-{name}"] = microvm(f"microvm-{name}", **members)
    registry.open_default().put(Record(name, microvm_id=f"microvm-{name}", region="us-east-1"))


def items(data: Mapping[str, object], name: str) -> list[dict[str, object]]:
    found = data[name]
    assert isinstance(found, list)
    return found


def bounds(amount: object) -> tuple[float, float]:
    assert isinstance(amount, dict)
    return amount["low"], amount["high"]


def test_without_sandboxes_nobody_is_asked_and_nothing_costs(priced: Account) -> None:
    data = cost.estimate_cost()
    assert (data["sandboxes"], data["images"], data["assumptions"]) == ([], [], [])
    assert priced.peer.requests == []
    total = data["total"]
    assert isinstance(total, dict)
    assert bounds(total["per_hour"]) == bounds(total["images_per_month"]) == (0, 0)


def test_a_sandbox_its_image_and_their_sums(priced: Account) -> None:
    put(priced, "web", startedAt=time.time() - 3600)
    put(priced, "idle", state="SUSPENDED")
    data = cost.estimate_cost()
    web, idle = items(data, "sandboxes")
    assert (web["name"], web["memory"], web["reasons"]) == ("web", 2048, [])
    assert bounds(web["per_hour"]) == (HOUR, HOUR)
    assert bounds(web["so_far"]) == pytest.approx((HOUR + LEAST_START, HOUR + MOST_START), abs=0.002)
    assert bounds(web["until_expiry"]) == pytest.approx((7 * HOUR, 7 * HOUR), abs=0.002)
    assert bounds(idle["per_hour"]) == pytest.approx((0, 16 * 0.0001111111))
    (image,) = items(data, "images")
    assert (image["image_version"], image["stored_bytes"]) == ("1.0", {"low": 512 * MIB, "high": 1492 * MIB})
    assert bounds(image["per_month"]) == pytest.approx((LEAST_STORED, MOST_STORED))
    total = data["total"]
    assert isinstance(total, dict)
    assert bounds(total["per_hour"]) == pytest.approx((HOUR, HOUR + 16 * 0.0001111111))
    assert bounds(total["images_per_month"]) == bounds(image["per_month"])
    assert total["left_out"] == {"per_hour": 0, "so_far": 0, "until_expiry": 0}


def test_it_is_said_to_be_an_estimate_with_its_prices_and_their_date(priced: Account) -> None:
    put(priced, "web")
    data = cost.estimate_cost()
    assert data["currency"] == "USD"
    prices = data["prices"]
    assert isinstance(prices, dict)
    assert (prices["as_of"], prices["region"], prices["vcpu_second"]) == ("2026-09", "us-east-1", 0.0000276944)
    said = " ".join(map(str, data["assumptions"] if isinstance(data["assumptions"], list) else ()))
    for word in ("us-east-1", "2026-09", "baseline", "idle policy", "$0.0038", "7 days"):
        assert word in said


def test_one_sandbox_alone(priced: Account) -> None:
    put(priced, "web")
    put(priced, "other")
    (web,) = items(cost.estimate_cost(names=["web"]), "sandboxes")
    assert web["name"] == "web"
    with pytest.raises(errors.SandboxNotFoundError):
        cost.estimate_cost(names=["web", "none"])


def test_several_by_their_names_each_once_and_one_that_is_not_known_is_told(priced: Account) -> None:
    for name in ("a", "b", "c"):
        put(priced, name)
    priced.refused.append("/microvms/microvm-c$")
    data = cost.estimate_cost(names=["c", "a", "a"])
    assert [each["name"] for each in items(data, "sandboxes")] == ["c", "a"]
    assert "not authorized" in str(items(data, "sandboxes")[0]["reasons"])
    with pytest.raises(errors.AccessDeniedError):
        cost.estimate_cost(names=["c"])


@pytest.mark.usefixtures("no_daemon")
def test_of_sandboxes_on_this_machine_the_memory_is_told(priced: Account) -> None:
    notes.leave_note(rendezvous.folder(prepare=True), "microvm-here")
    registry.open_default().put(Record("here", microvm_id="microvm-here", target="local", region="us-east-1"))
    (here,) = items(cost.estimate_cost(names=["here"]), "sandboxes")
    assert here["memory"] == 512


def test_a_sandbox_that_there_is_not_is_priced_by_its_size() -> None:
    data = cost.quote_cost(memory=2048, hours=2)
    assert bounds(data["running_hour"]) == (HOUR, HOUR)
    assert bounds(data["suspended_hour"]) == pytest.approx((0, 16 * 0.0001111111))
    assert bounds(data["running"]) == pytest.approx((2 * HOUR, 2 * HOUR))
    assert data["cpus"] == 1
    assert "us-east-1" in str(data["assumptions"])
    assert "idle policy" not in str(data["assumptions"])
    for wrong in ({"memory": 1000}, {"memory": 512, "hours": 0}, {"memory": 512, "hours": float("nan")}):
        with pytest.raises(errors.UsageError):
            cost.quote_cost(**wrong)  # type: ignore[arg-type]


def test_a_size_that_cannot_be_asked_for_is_no_figure(priced: Account) -> None:
    priced.refused.append("/versions/1.0$")
    put(priced, "web")
    data = cost.estimate_cost()
    (web,) = items(data, "sandboxes")
    assert (web["per_hour"], web["so_far"], web["until_expiry"]) == (None, None, None)
    assert "not authorized" in str(web["reasons"])
    (image,) = items(data, "images")
    assert (image["memory"], image["stored_bytes"], image["per_month"]) == (None, None, None)
    assert "not authorized" in str(image["reason"])
    total = data["total"]
    assert isinstance(total, dict)
    assert (total["per_hour"], total["images_per_month"]) == (None, None)


def test_a_service_that_does_not_know_one_leaves_it_out(priced: Account) -> None:
    put(priced, "web")
    put(priced, "gone")
    del priced.microvms["microvm-gone"]
    data = cost.estimate_cost()
    assert [each["reasons"] for each in items(data, "sandboxes")] == [[], ["its state is GONE"]]
    total = data["total"]
    assert isinstance(total, dict)
    assert total["left_out"] == {"per_hour": 1, "so_far": 1, "until_expiry": 1}
    assert bounds(total["per_hour"]) == (HOUR, HOUR)


def test_sandboxes_on_this_machine_cost_nothing_and_nobody_is_asked(priced: Account) -> None:
    registry.open_default().put(Record("here", target="local", region="us-east-1"))
    data = cost.estimate_cost(local=True)
    (here,) = items(data, "sandboxes")
    assert bounds(here["per_hour"]) == bounds(here["so_far"]) == (0, 0)
    assert data["assumptions"] == ["Sandboxes on this machine cost nothing."]
    assert priced.peer.requests == []


def test_what_has_no_name_here_and_every_image_are_found_on_request(priced: Account) -> None:
    put(priced, "web")
    priced.microvms["microvm-lost"] = microvm("microvm-lost", startedAt=time.time() - 3600)
    priced.microvms["microvm-over"] = microvm("microvm-over", state="TERMINATED")
    priced.add_version("demo", "2.0", status="INACTIVE")
    priced.add_version("other", "1.0", state="FAILED")
    assert len(items(cost.estimate_cost(), "sandboxes")) == len(items(cost.estimate_cost(), "images")) == 1
    data = cost.estimate_cost(unnamed=True)
    web, lost = items(data, "sandboxes")
    assert (web["name"], lost["name"], lost["microvm_id"]) == ("web", None, "microvm-lost")
    assert bounds(lost["per_hour"]) == (HOUR, HOUR)
    assert bounds(lost["so_far"]) == pytest.approx((LEAST_START, HOUR + MOST_START), abs=0.002)
    assert bounds(lost["until_expiry"])[1] == pytest.approx(7 * HOUR, abs=0.002)
    assert [image["image_version"] for image in items(data, "images")] == ["1.0", "2.0"]
    assert "failed" not in data


def test_images_that_may_not_be_listed_are_told(priced: Account) -> None:
    put(priced, "web")
    priced.refused.append("/microvm-images$")
    data = cost.estimate_cost(unnamed=True)
    assert len(items(data, "sandboxes")) == len(items(data, "images")) == 1
    (failed,) = items(data, "failed")
    assert (failed["target"], failed["region"]) == ("aws", "us-east-1")
    assert isinstance(failed["error"], dict)
    assert failed["error"]["code"] == "access_denied"
