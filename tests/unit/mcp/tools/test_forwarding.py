"""Ports of sandboxes on this machine, through tools."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.fleet import Fleet, Recording
from tests.support.lifecycle import eventually
from tests.support.mcp_tools import Tools
from vmnest import errors
from vmnest.mcp.calls import CancelledError
from vmnest.mcp.tools import forwarding
from vmnest.mcp.tools.forwarding import Forward, Forwards

SERVER = "cd /etc && (python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 &)"
READY = (
    "for i in $(seq 100); do python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8123))' && break; done"
)


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    for each in forwarding._FORWARDS.all():
        forwarding._FORWARDS.remove(each)


def members(data: dict[str, object], name: str) -> list[Any]:
    found = data[name]
    assert isinstance(found, list)
    return found


def test_a_server_is_reached_until_it_is_stopped_or_its_sandbox_ends(local_tools: Tools) -> None:
    local_tools.data("sandbox_create", name="web", memory=512)
    local_tools.data("sandbox_shell", name="web", command=f"{SERVER}; {READY}")
    made = local_tools.data("sandbox_forward_start", name="web", ports=["8123:0"])
    assert (made["name"], made["state"]) == ("web", "open")
    (port,) = members(made, "forwards")
    assert port["remote"] == 8123
    with urllib.request.urlopen(f"{port['url']}/hostname", timeout=30) as answer:
        assert answer.status == 200
    error = local_tools.error("sandbox_forward_start", name="web", ports=[f"8123:{port['local']}"])
    assert error["code"] == "listen_failed"
    assert "8000:0" in str(error["hint"])
    other = local_tools.data("sandbox_forward_start", name="web", ports=["8124:0", "8125:0"])
    listed = local_tools.data("sandbox_forward_list")
    assert listed == {"forwardings": [made, other], "count": 2}
    assert local_tools.data("sandbox_forward_stop", id=made["id"]) == {"stopped": [made["id"]]}
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port["local"]), timeout=10)
    assert local_tools.error("sandbox_forward_stop", id=made["id"])["code"] == "not_found"
    local_tools.data("sandbox_remove", name="web")
    eventually(lambda: members(local_tools.data("sandbox_forward_list"), "forwardings")[0]["state"] == "ended")
    (ended,) = members(local_tools.data("sandbox_forward_list"), "forwardings")
    assert ended["error"]["code"] in ("microvm_ended", "sandbox_not_found")
    assert local_tools.data("sandbox_forward_stop", name="web") == {"stopped": [other["id"]]}
    assert local_tools.data("sandbox_forward_list")["count"] == 0


@pytest.mark.parametrize(("ports", "code"), [(["0"], "usage"), ([], "usage"), (["x"], "usage"), (["9000"], "usage")])
def test_what_cannot_be_forwarded_leaves_nothing(
    fleet: Fleet, record_as: Recording, tools: Tools, ports: list[str], code: str
) -> None:
    fleet.add("microvm-web", state="RUNNING")
    record_as("web")
    assert tools.error("sandbox_forward_start", name="web", ports=ports)["code"] == code
    assert tools.data("sandbox_forward_list")["count"] == 0


def test_a_name_that_is_not_recorded_is_not_found(fleet: Fleet, tools: Tools) -> None:
    assert tools.error("sandbox_forward_start", name="nobody", ports=["80"])["code"] == "sandbox_not_found"


@pytest.mark.parametrize("arguments", [{}, {"id": "x", "name": "web"}])
def test_what_to_stop_is_named_once(tools: Tools, arguments: dict[str, Any]) -> None:
    assert tools.error("sandbox_forward_stop", **arguments)["code"] == "usage"


def test_a_name_without_forwardings_is_not_found(tools: Tools) -> None:
    error = tools.error("sandbox_forward_stop", name="we\nb")
    assert (error["code"], error["message"]) == ("not_found", "no forwarding is of we b")


def test_one_that_takes_its_time_is_told_and_may_fail_later(fleet: Fleet, record_as: Recording) -> None:
    fleet.add("microvm-web", state="PENDING")
    record_as("web")
    made = Forward("web", ["8000:0"])
    made.start()
    made.wait(0)
    assert made.describe() == {"id": made.id, "name": "web", "state": "starting", "forwards": []}
    fleet.members["microvm-web"]["state"] = "TERMINATED"
    with pytest.raises(errors.MicroVMEndedError):
        made.wait(30)
    assert made.is_over
    error = made.describe()["error"]
    assert isinstance(error, dict)
    assert error["code"] == "microvm_ended"


def test_one_that_is_stopped_before_it_is_open_does_not_stay(fleet: Fleet, record_as: Recording) -> None:
    fleet.add("microvm-web", state="PENDING")
    record_as("web")
    made = Forward("web", ["8000:0"])
    made.start()
    made.stop()
    assert made.is_over
    fleet.members["microvm-web"]["state"] = "RUNNING"
    eventually(lambda: made._forwarding is not None and not made._forwarding.is_open)


def test_a_call_that_is_cancelled_leaves_nothing(fleet: Fleet, record_as: Recording, tools: Tools) -> None:
    fleet.add("microvm-web", state="PENDING")
    record_as("web")
    call = tools.open()
    call.cancel()
    with pytest.raises(CancelledError):
        tools.call("sandbox_forward_start", within=call, name="web", ports=["8000:0"])
    assert tools.data("sandbox_forward_list")["count"] == 0


def test_there_are_not_more_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "MOST_FORWARDS", 2)
    forwards = Forwards()
    first, second = forwards.add("a", ["80"]), forwards.add("b", ["80"])
    with pytest.raises(errors.UsageError, match="more than 2 forwardings"):
        forwards.add("c", ["80"])
    first.stop()
    third = forwards.add("c", ["80"])
    assert forwards.all() == [second, third]
    assert len({first.id, second.id, third.id}) == 3


def test_there_are_not_more_ports_than_so_many() -> None:
    forwards = Forwards()
    first = forwards.add("a", ["1000-1199:2000-2199", "80"])
    with pytest.raises(errors.UsageError, match="256 ports"):
        forwards.add("b", ["3000-3055"])
    forwards.add("b", ["3000-3054"])
    first.stop()
    assert forwards.add("c", ["1-201"]).count == 201
