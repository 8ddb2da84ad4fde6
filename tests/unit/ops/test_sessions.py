"""Commands that are looked at now and then."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cloud import LocalCloud
from vmnest import errors
from vmnest.ops import commands, sandboxes, sessions


@given(st.text(), st.integers(0, 200))
def test_a_character_that_is_torn_is_left_for_who_reads_next(text: str, cut: int) -> None:
    data = bytearray(text.encode("utf-8")[:cut])
    whole = data[: len(data) - sessions._count_torn(data)]
    assert text.startswith(whole.decode("utf-8"))


@pytest.mark.parametrize("data", [b"", b"a", b"\xff", b"\x80\x80\x80\x80", b"a\xc3\xa9", b"\xf5"])
def test_what_is_no_beginning_is_not_left(data: bytes) -> None:
    assert sessions._count_torn(bytearray(data)) == 0


def test_a_command_is_started_polled_fed_and_closed(local_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_DIR", local_cloud.folder)
    monkeypatch.setenv("AGENT_SANDBOX_STATE", f"{local_cloud.folder}/state.json")
    monkeypatch.setenv("AGENT_SANDBOX_TARGET", "local")
    sandboxes.create_sandbox(name="web")
    identity = sessions.start_session(name="web", command=commands.Command(["cat"], takes_input=True))["id"]
    assert isinstance(identity, str)
    assert sessions.poll_session(name="web", id=identity, wait=0)["running"] is True
    assert sessions.write_session(name="web", id=identity, data=b"a\xff", eof=True)["written"] == 2
    while (polled := sessions.poll_session(name="web", id=identity, wait=30))["running"]:
        pass
    assert (polled["stdout"], polled["lossy"], polled["next_offset"], polled["exit_code"]) == ("a\ufffd", True, 2, 0)
    assert sessions.poll_session(name="web", id=identity, offset=2)["stdout"] == ""
    assert sessions.close_session(name="web", id=identity)["exit_code"] == 0
    with pytest.raises(errors.ProcessNotFoundError, match="there is no command"):
        sessions.poll_session(name="web", id=identity)
    with pytest.raises(errors.UsageError):
        sessions.start_session(name="web", command=commands.Command([]))
