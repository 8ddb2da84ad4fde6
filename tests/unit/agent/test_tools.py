"""Scripts that run in a sandbox, and what is made of what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.cutting import open_client
from tests.support.minimal import bare_client
from tests.support.scripted import CUT, Answer, Received, ScriptedServer, json_answer
from vmnest import errors
from vmnest.agent.client import AgentClient
from vmnest.agent.tools import Tools
from vmnest.deadline import NEVER

NAMES = st.binary(min_size=1, max_size=40).filter(lambda name: b"\0" not in name)
SHOW = 'printf "%s" "$a" "|" "$b"'


@pytest.fixture
def tools(base_client: AgentClient) -> Tools:
    return Tools(base_client, feature="fs")


def run(tools: Tools, script: str, *words: str, path: str = "/x", other: str = "", repeatable: bool = True) -> bytes:
    return tools.run(script, *words, path=path, other=other, repeatable=repeatable, deadline=NEVER)[0]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(NAMES, NAMES)
def test_any_path_arrives_byte_for_byte_and_is_no_option(tools: Tools, first: bytes, second: bytes) -> None:
    one, other = (name.decode("utf-8", "surrogateescape") for name in (first, second))
    expected = [name if name.startswith(b"/") else b"./" + name for name in (first, second)]
    assert run(tools, SHOW, path=one, other=other) == b"|".join(expected)


def test_there_may_be_one_path_only(tools: Tools) -> None:
    assert run(tools, SHOW, path="/x\n\n") == b"/x\n\n|"


def test_words_are_arguments(tools: Tools) -> None:
    assert run(tools, 'printf "%s," "$@"', "a b", "", "$(id)") == b"a b,,$(id),"


def test_a_path_that_can_be_none_is_refused_before_anything_runs(tools: Tools) -> None:
    for wrong in ("", "a\0b", "\ud800"):
        with pytest.raises(errors.BadArgumentError):
            run(tools, SHOW, path=wrong)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("fail file_not_found", errors.RemoteFileNotFoundError),
        ("fail file_exists", errors.RemoteFileExistsError),
        ("fail not_a_file", errors.NotAFileError),
        ("fail not_a_directory", errors.RemoteNotADirectoryError),
        ("fail permission_denied", errors.RemotePermissionError),
        ("fail checksum_mismatch", errors.ChecksumMismatchError),
        ("echo noise >&2; fail file_exists", errors.RemoteFileExistsError),
        ("fail whatever", errors.RemoteFileError),
        ("cat /nowhere", errors.RemoteFileNotFoundError),
        ("cat /etc", errors.NotAFileError),
        ("cat /etc/passwd/x", errors.RemoteNotADirectoryError),
        ("mkdir /etc", errors.RemoteFileExistsError),
        ("rmdir /etc", errors.DirectoryNotEmptyError),
        ("cat /etc/passwd > /dev/full", errors.NoSpaceError),
        ("exit 7", errors.RemoteFileError),
        ("kill -9 $$", errors.RemoteFileError),
    ],
)
def test_what_goes_wrong_has_its_class(tools: Tools, script: str, expected: type[errors.VmnestError]) -> None:
    with pytest.raises(errors.RemoteFileError) as caught:
        run(tools, script, path="/some/path")
    assert type(caught.value) is expected
    assert "/some/path" in caught.value.message


def test_what_is_wrong_with_the_other_path_names_that(tools: Tools) -> None:
    with pytest.raises(errors.RemoteFileExistsError, match="/other"):
        run(tools, "fail file_exists:b", path="/one", other="/other")


def test_a_complaint_is_one_printable_line(tools: Tools) -> None:
    with pytest.raises(errors.RemoteFileError) as caught:
        run(tools, r"""printf '\033[31mred %05000d\n' 1 >&2; exit 1""")
    assert len(caught.value.message) < 700
    assert "\x1b" not in caught.value.message


def test_some_statuses_may_be_fine(tools: Tools) -> None:
    output, complaint = tools.run("echo out; echo err >&2; exit 2", path="/x", fine=frozenset({0, 2}), deadline=NEVER)
    assert (output, complaint) == (b"out\n", b"err\n")


def test_a_missing_tool_is_named_with_the_feature(tools: Tools) -> None:
    with pytest.raises(errors.UnsupportedError, match=r"'fs'.*no-such-tool") as caught:
        run(tools, "need sh no-such-tool; echo never")
    assert caught.value.details == {"feature": "fs", "tool": "no-such-tool"}


def test_an_image_without_a_shell_is_unsupported(tmp_path: Path) -> None:
    with bare_client(tmp_path, tools=[]) as client, pytest.raises(errors.UnsupportedError, match="shell"):
        run(Tools(client, feature="fs"), SHOW)


def test_a_script_whose_answer_was_lost_runs_again_if_it_may() -> None:
    done = json_answer(200, {"exit_code": 0, "stdout": "b3V0", "stderr": "", "encoding": "base64"})
    healthy = json_answer(200, {"status": "ok", "version": "1", "features": []})
    missing = json_answer(404, {"detail": "Not Found"})

    def server(*steps: Answer) -> ScriptedServer:
        script = iter(steps)

        def answer(received: Received) -> Answer:
            if received.target == "/v1/exec":
                return next(script)
            return healthy if received.method == "GET" else missing

        return ScriptedServer(answer, repeat_last=True)

    with server(CUT, done) as peer, open_client(peer.url) as client:
        assert run(Tools(client, feature="fs"), SHOW) == b"out"
    with server(CUT, done) as peer, open_client(peer.url) as client, pytest.raises(errors.VmnestError) as caught:
        run(Tools(client, feature="fs"), SHOW, repeatable=False)
    assert caught.value.details["outcome"] == "unknown"


def test_output_has_a_limit(tools: Tools) -> None:
    assert tools.run("printf 12345", path="/x", most=5, deadline=NEVER)[0] == b"12345"
    with pytest.raises(errors.RemoteFileError, match="of /x is more than 4 bytes"):
        tools.run("printf 12345", path="/x", most=4, deadline=NEVER)


def test_output_does_not_depend_on_the_images_language(tools: Tools) -> None:
    assert run(tools, 'printf %s "$LC_ALL"') == b"C"
