"""Which rules a request is served by."""

from __future__ import annotations

import pytest

from vmnest.mcp import eras
from vmnest.mcp.jsonrpc import ProtocolError, Request

PREFIX = "io.modelcontextprotocol/"
MODERN = {PREFIX + "protocolVersion": "2026-07-28", PREFIX + "clientCapabilities": {}}


def choose(method: str, params: dict[str, object] | None = None, *, negotiated: str | None = None) -> eras.Era:
    return eras.choose(Request(1, method, params or {}), negotiated=negotiated)


def refusal(method: str, params: dict[str, object] | None = None, *, negotiated: str | None = None) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        choose(method, params, negotiated=negotiated)
    return caught.value


def modern(**changes: object) -> dict[str, object]:
    meta = {**MODERN, **{PREFIX + name: value for name, value in changes.items()}}
    return {"_meta": {name: value for name, value in meta.items() if value is not ...}}


@pytest.mark.parametrize("requested", eras.LEGACY_VERSIONS)
def test_a_version_that_is_served_is_agreed_on(requested):
    assert eras.negotiate(requested) == requested


@pytest.mark.parametrize("requested", ["2024-10-07", "2026-07-28", "9999-01-01", ""])
def test_any_other_version_is_answered_with_the_newest_of_handshakes(requested):
    assert eras.negotiate(requested) == "2025-11-25"


@pytest.mark.parametrize("negotiated", [None, "2025-06-18"])
def test_a_request_that_names_a_version_is_modern_whatever_came_before(negotiated):
    for method in ("server/discover", "tools/list", "tools/call", "resources/read"):
        era = choose(method, modern(), negotiated=negotiated)
        assert (era.is_modern, era.version) == (True, "2026-07-28")


@pytest.mark.parametrize(
    ("changes", "code", "named"),
    [
        ({"protocolVersion": 7}, -32602, "protocolVersion"),
        ({"clientCapabilities": ...}, -32602, "clientCapabilities"),
        ({"clientCapabilities": []}, -32602, "clientCapabilities"),
        ({"logLevel": "loud"}, -32602, "logLevel"),
        ({"logLevel": {}}, -32602, "logLevel"),
    ],
)
def test_what_a_modern_request_must_have_is_named(changes, code, named):
    error = refusal("server/discover", modern(**changes))
    assert error.code == code
    assert named in error.message


def test_nobody_need_say_who_he_is():
    assert choose("server/discover", modern(clientInfo=...)).is_modern
    assert choose("server/discover", modern(logLevel="debug")).is_modern


@pytest.mark.parametrize("method", ["server/discover", "foo/bar", "tools/list"])
def test_an_unknown_version_is_told_before_an_unknown_method(method):
    error = refusal(method, modern(protocolVersion="1900-01-01"))
    assert (error.code, error.data) == (-32022, {"supported": ["2026-07-28"], "requested": "1900-01-01"})


@pytest.mark.parametrize(
    "method", ["ping", "logging/setLevel", "resources/subscribe", "subscriptions/listen", "prompts/list", "foo/bar", ""]
)
def test_what_the_modern_era_has_not_is_not_found(method):
    assert refusal(method, modern()).code == -32601


def test_a_well_formed_handshake_is_one_whatever_its_meta_has():
    assert not choose("initialize", {"protocolVersion": "2025-06-18", **modern()}).is_modern
    assert refusal("initialize", modern()).code == -32601
    assert refusal("initialize").code == -32602
    assert refusal("initialize", {"protocolVersion": 3}).code == -32602


@pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen"])
def test_what_only_the_modern_era_has_asks_for_its_members(method):
    for meta in ({}, {"_meta": None}, {"_meta": {"progressToken": 1}}):
        error = refusal(method, meta, negotiated="2025-11-25")
        assert error.code == -32602
        assert "protocolVersion" in error.message
        assert "clientCapabilities" in error.message


def test_half_of_the_modern_members_are_a_mistake():
    error = refusal("tools/list", modern(protocolVersion=...), negotiated="2025-11-25")
    assert error.code == -32602
    assert "protocolVersion" in error.message
    assert "clientCapabilities" not in error.message


def test_before_any_handshake_a_request_is_answered_with_what_to_do():
    error = refusal("tools/list")
    assert error.code == -32602
    assert "initialize" in error.message
    assert refusal("foo/bar").code == -32601
    assert not choose("ping").is_modern


def test_after_a_handshake_its_version_holds():
    era = choose("tools/call", {"_meta": {"progressToken": 0}}, negotiated="2024-11-05")
    assert (era.is_modern, era.version) == (False, "2024-11-05")
    assert refusal("prompts/list", negotiated="2024-11-05").code == -32601


def test_results_have_the_shape_of_their_era():
    server = {"name": "s", "version": "1"}
    old, new = eras.Era("2025-11-25", is_modern=False), eras.Era("2026-07-28", is_modern=True)
    assert old.complete({"tools": []}, server=server, ttl_ms=5) == {"tools": []}
    assert new.complete({"tools": []}, server=server, ttl_ms=5, is_public=True) == {
        "resultType": "complete",
        "tools": [],
        "ttlMs": 5,
        "cacheScope": "public",
        "_meta": {PREFIX + "serverInfo": server},
    }
    assert "ttlMs" not in new.complete({"content": []}, server=server)
    assert new.complete({}, server=server, ttl_ms=0)["cacheScope"] == "private"


def test_a_missing_resource_has_the_code_of_its_era():
    old, new = eras.Era("2025-11-25", is_modern=False), eras.Era("2026-07-28", is_modern=True)
    assert [era.resource_not_found("x://y").code for era in (old, new)] == [-32002, -32602]
    assert old.resource_not_found("x://y").data == {"uri": "x://y"}
