"""Files of sandboxes, through tools."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.support.mcp_tools import Tools
from vmnest.mcp import jsonrpc
from vmnest.mcp.tools import files


def test_files_are_written_read_listed_copied_moved_and_removed(local_tools: Tools) -> None:
    local_tools.data("sandbox_create", name="web", memory=512)

    def on(tool: str, **arguments: Any) -> dict[str, object]:
        return local_tools.data(f"sandbox_fs_{tool}", name="web", **arguments)

    def read(path: str, **arguments: object) -> object:
        content = on("read", path=path, **arguments)["content"]
        assert isinstance(content, dict)
        return content["text"]

    assert on("write", path="/tmp/t/a.txt", content="1\n2\n3\n", mode="640") == {"path": "/tmp/t/a.txt", "bytes": 6}
    assert on("read", path="/tmp/t/a.txt")["next_offset"] is None
    assert read("/tmp/t/a.txt", offset=2, limit=1) == "2\n"
    assert read("/tmp/t/a.txt", encoding="base64", offset=4) == base64.b64encode(b"3\n").decode()
    on("write", path="/tmp/t/b", content=base64.b64encode(b"\xff\0").decode(), encoding="base64")
    assert on("read", path="/tmp/t/b")["encoding"] == "base64"
    assert on("mkdir", path="/tmp/t/sub/deep") == {"path": "/tmp/t/sub/deep", "created": True}
    assert on("mkdir", path="/tmp/t/sub/deep")["created"] is True
    assert on("copy", src="/tmp/t/a.txt", dst="/tmp/t/sub")["destination"] == "web:/tmp/t/sub/a.txt"
    assert on("copy", src="/tmp/t/sub", dst="/tmp/t/sub2")["complete"] is True
    assert on("rename", src="/tmp/t/b", dst="/tmp/t/c")["destination"] == "web:/tmp/t/c"
    listed = on("list", path="/tmp/t", depth=2)["entries"]
    assert isinstance(listed, list)
    assert [entry["path"].removeprefix("/tmp/t/") for entry in listed] == [
        *("a.txt", "c", "sub", "sub/a.txt", "sub/deep", "sub2", "sub2/a.txt", "sub2/deep")
    ]
    assert on("list", path="/tmp/t", limit=1)["next_offset"] == 1
    found = on("stat", path="/tmp/t/a.txt", sha256=True)
    assert (found["type"], found["size"], found["mode"]) == ("file", 6, "0640")
    assert on("exists", path="/tmp/t/c")["exists"] is True
    error = local_tools.error("sandbox_fs_remove", name="web", path="/tmp/t/sub")
    assert error["code"] == "directory_not_empty"
    assert "recursive: true" in str(error["hint"])
    assert on("remove", path="/tmp/t", recursive=True)["removed"] is True
    assert local_tools.error("sandbox_fs_remove", name="web", path="/tmp/t")["code"] == "file_not_found"
    assert on("exists", path="/tmp/t/c")["exists"] is False
    # What fits no line of the protocol, as it is twice in an answer, comes in smaller parts.
    on("write", path="/tmp/wide", content="\x01" * 700_000)
    wide = on("read", path="/tmp/wide", max_bytes=700_000)
    assert 100_000 < len(str(read("/tmp/wide", max_bytes=700_000))) < 700_000
    assert wide["line_cut"] is True
    result = {"content": [{"type": "text", "text": str(wide)}], "structuredContent": wide}
    assert len(jsonrpc.to_line(jsonrpc.build_result(1, result))) < 4 << 20
    # A pipe is no file: nobody waits for who might write into it.
    local_tools.data("sandbox_shell", name="web", command="mkfifo /tmp/pipe; touch \"$(printf '/tmp/o\\377\\nx')\"")
    assert local_tools.error("sandbox_fs_read", name="web", path="/tmp/pipe")["code"] == "not_a_file"
    names = on("list", path="/tmp")["entries"]
    assert isinstance(names, list)
    odd = next(entry for entry in names if entry["name"].startswith("o"))
    assert odd["name"] == "o\udcff\nx"
    assert read(odd["path"]) == ""
    for wrong in ({"depth": 0}, {"depth": 1 << 40}, {"limit": 0}, {"offset": -1}):
        assert local_tools.error("sandbox_fs_list", name="web", **wrong)["code"] == "usage"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read", {"path": "/f"}),
        ("write", {"path": "/f", "content": ""}),
        ("list", {}),
        ("mkdir", {"path": "/f"}),
        ("remove", {"path": "/f"}),
        ("copy", {"src": "/f", "dst": "/g"}),
        ("rename", {"src": "/f", "dst": "/g"}),
        ("stat", {"path": "/f"}),
        ("exists", {"path": "/f"}),
    ],
)
def test_a_name_that_is_not_recorded_is_not_found(local_tools: Tools, tool: str, arguments: dict[str, object]) -> None:
    assert local_tools.error(f"sandbox_fs_{tool}", name="nobody", **arguments)["code"] == "sandbox_not_found"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"content": "!", "encoding": "base64"}, "no base64"),
        ({"content": "é", "encoding": "base64"}, "no base64"),
        ({"content": "\ud800"}, "half a character"),
        ({"content": "", "mode": "9"}, "octal"),
        ({"content": "", "mode": "rwxr-xr-x"}, "octal"),
        ({"content": "", "encoding": "latin-1"}, "one of text, base64"),
    ],
)
def test_content_that_is_none_is_refused(tools: Tools, arguments: dict[str, object], message: str) -> None:
    error = tools.error("sandbox_fs_write", name="web", path="/f", **arguments)
    assert error["code"] == "usage"
    assert message in str(error["message"])


def test_base64_may_be_wrapped() -> None:
    assert files._decode("YWJj\nZA==\n", encoding="base64") == b"abcd"


def test_more_than_may_be_answered_is_refused(tools: Tools) -> None:
    error = tools.error("sandbox_fs_read", name="web", path="/f", max_bytes=1 << 40)
    assert "AGENT_SANDBOX_MCP_MAX_OUTPUT_BYTES" in str(error["hint"])
