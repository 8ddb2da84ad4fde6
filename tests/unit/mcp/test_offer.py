"""vmnest's own tools and resources behind the protocol."""

from __future__ import annotations

from tests.support.mcp_server import Conversation
from vmnest import errors
from vmnest.mcp import offer, resources
from vmnest.mcp.resources import Resource


def refuse() -> dict[str, object]:
    raise errors.StateFileError("the state file is damaged", hint="Repair it.")


def conversation() -> Conversation:
    talk = Conversation(offer.Offer())  # type: ignore[arg-type]
    talk.shake_hands()
    return talk


def test_tools_are_listed_and_unknown_ones_refused():
    talk = conversation()
    talk.request(1, "tools/list")
    names = [tool["name"] for tool in talk.reply()["result"]["tools"]]
    assert len(names) == len(set(names))
    talk.request(2, "tools/call", {"name": "no_such_tool"})
    assert talk.reply()["error"]["code"] == -32602


def test_a_resource_that_cannot_be_had_is_an_error_with_its_remedy(monkeypatch):
    monkeypatch.setattr(resources, "RESOURCES", (Resource("broken", title="Broken", description="No.", read=refuse),))
    talk = conversation()
    talk.request(1, "resources/read", {"uri": "agent-sandbox://broken"})
    error = talk.reply()["error"]
    assert (error["code"], error["data"]["hint"]) == (-32603, "Repair it.")
