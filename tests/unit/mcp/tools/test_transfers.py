"""Files and directories between this machine and sandboxes, through tools."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcp_tools import ERA, Tools
from vmnest.mcp.calls import Call, CancelledError
from vmnest.mcp.jsonrpc import Request
from vmnest.mcp.tools import attendance, transfers

FROM, TO = "sandbox_fs_copy_from_host", "sandbox_fs_copy_to_host"
LARGE = 3_000_000


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, which is allowed, with a secret beside it."""
    folder = tmp_path / "project"
    (folder / "src" / "node_modules").mkdir(parents=True)
    (folder / "src" / "node_modules" / "big").write_bytes(b"x" * 1000)
    (folder / "src" / "a.py").write_text("print(1)\n")
    (folder / "src" / "run").write_text("#!/bin/sh\n")
    (folder / "src" / "run").chmod(0o755)
    (tmp_path / "secret").write_text("secret")
    (folder / "out").symlink_to("..")
    os.mkfifo(folder / "fifo")
    monkeypatch.chdir(folder)
    return folder


def shell(tools: Tools, line: str) -> str:
    stdout = tools.data("sandbox_shell", name="web", command=line)["stdout"]
    assert isinstance(stdout, dict)
    return str(stdout["text"])


def test_files_and_directories_go_both_ways(local_tools: Tools, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local_tools.data("sandbox_create", name="web", memory=512)

    def copy_in(host_path: str, dest: str, **options: Any) -> dict[str, object]:
        return local_tools.data(FROM, name="web", host_path=host_path, dest=dest, **options)

    def copy_out(src: str, host_path: str, **options: Any) -> dict[str, object]:
        return local_tools.data(TO, name="web", src=src, host_path=host_path, **options)

    # A file, a directory; what the directory is to be in is made.
    told = copy_in("src/run", "/tmp/t/deep/run")
    assert (told["destination"], told["files"], told["bytes"]) == ("web:/tmp/t/deep/run", 1, 10)
    told = copy_in(str(project / "src"), "/tmp/t/tree", exclude=["node_modules"])
    assert (told["files"], told["directories"], told["complete"], told["skipped"]) == (2, 1, True, [])
    assert copy_in("src", "/tmp/t/deep")["destination"] == "web:/tmp/t/deep/src"
    assert copy_in("src/a.py", "/tmp/t/new/")["destination"] == "web:/tmp/t/new/a.py"
    assert shell(local_tools, "cd /tmp/t; find . -type f | sort | xargs stat -c '%A %n'").splitlines() == [
        "-rwxr-xr-x ./deep/run",
        "-rw-r--r-- ./deep/src/a.py",
        "-rw-r--r-- ./deep/src/node_modules/big",
        "-rwxr-xr-x ./deep/src/run",
        "-rw-r--r-- ./new/a.py",
        "-rw-r--r-- ./tree/a.py",
        "-rwxr-xr-x ./tree/run",
    ]
    # Back again.
    assert copy_out("/tmp/t/tree/run", "made/here/run")["files"] == 1
    assert (project / "made" / "here" / "run").stat().st_mode & 0o777 == 0o755
    told = copy_out("/tmp/t/deep", ".")
    assert (told["destination"], told["files"]) == ("./deep", 4)
    assert (project / "deep" / "src" / "a.py").read_text() == "print(1)\n"
    assert copy_out("/tmp/t/tree/.", "flat")["files"] == 2
    assert sorted(os.listdir(project / "flat")) == ["a.py", "run"]
    # Nothing comes from outside, and nothing goes there.
    for path in ("../secret", "out/secret", str(project.parent / "secret"), "/etc/passwd", "..", "/", "/none/at/all"):
        assert local_tools.error(FROM, name="web", host_path=path, dest="/tmp/x")["code"] == "policy_denied"
        assert local_tools.error(TO, name="web", src="/tmp/t/tree/run", host_path=path)["code"] == "policy_denied"
    # What a sandbox has made leads nowhere else.
    shell(local_tools, "mkdir /tmp/evil; cd /tmp/evil; ln -s ../../secret up; ln -s /etc abs; ln -s a in; echo x > a")
    told = copy_out("/tmp/evil", "evil")
    assert (told["complete"], told["skipped_count"]) == (False, 2)
    assert sorted(os.listdir(project / "evil")) == ["a", "in"]
    (project / "evil" / "out").symlink_to("../..")
    shell(local_tools, "rm /tmp/evil/*; mkdir /tmp/evil/out; echo evil > /tmp/evil/out/secret")
    assert copy_out("/tmp/evil/.", "evil")["complete"] is False
    shell(local_tools, "echo evil > /tmp/out")
    assert local_tools.error(TO, name="web", src="/tmp/out", host_path="evil")["code"] == "policy_denied"
    (project / "evil" / "out").unlink()
    (project / "evil" / "out").symlink_to("a")
    assert copy_out("/tmp/out", "evil")["destination"] == "evil/out"  # what the link leads to is replaced, as by cp
    assert ((project / "evil" / "a").read_text(), (project / "evil" / "out").is_symlink()) == ("evil\n", True)
    assert (project.parent / "secret").read_text() == "secret"
    # What is neither a file nor a directory is not opened; in a directory it is left out, and not missed.
    assert local_tools.error(FROM, name="web", host_path="fifo", dest="/tmp/x")["code"] == "local_file"
    assert local_tools.error(TO, name="web", src="/tmp/out", host_path="fifo")["code"] == "local_file"
    told = copy_in(".", "/tmp/all", exclude=["node_modules", "evil"])
    assert told["complete"] is False  # of the link that leads out
    assert {"path": "fifo", "reason": "a named pipe"} in _list(told["skipped"])
    assert local_tools.error(TO, name="web", src="/dev/null", host_path="x")["code"] == "not_a_file"
    assert local_tools.error(FROM, name="web", host_path="none", dest="/tmp/x")["code"] == "local_file_not_found"
    assert local_tools.error(TO, name="web", src="/none", host_path="x")["code"] == "file_not_found"
    # What can be no path is none.
    for host_path, dest in (("src\0", "/x"), ("src", "/x\0y"), ("", "/x"), ("src", ""), ("\ud800", "/x")):
        error = local_tools.error(FROM, name="web", host_path=host_path, dest=dest)
        assert error["code"] in ("usage", "bad_argument")
    _check_progress_and_cancellation(local_tools, project)
    # What has no end is not taken; what is there stays.
    monkeypatch.setattr(transfers, "MOST_BYTES", LARGE - 1)
    before = os.listdir(project)
    error = local_tools.error(TO, name="web", src="/tmp/large", host_path="large")
    assert error["code"] == "file_error"
    assert os.listdir(project) == before
    line = "mkdir -p /tmp/huge/sub; echo 1 > /tmp/huge/a; for name in sub/b c; do cp /tmp/large /tmp/huge/$name; done"
    shell(local_tools, line)
    (project / "kept").mkdir()
    (project / "kept" / "mine").write_text("mine")
    for host_path in ("huge", "new/below/huge", "kept"):
        error = local_tools.error(TO, name="web", src="/tmp/huge/.", host_path=host_path)
        assert error["code"] == "file_error"
    assert sorted(os.listdir(project)) == sorted([*before, "kept", "new"])
    assert (os.listdir(project / "new" / "below"), os.listdir(project / "kept")) == ([], ["mine"])
    shell(local_tools, "rm -r /tmp/huge")
    # What takes too long says how to go on.
    monkeypatch.setattr(attendance, "MOST_SECONDS", 0.0)
    error = local_tools.error(FROM, name="web", host_path="src", dest="/tmp/it's")
    assert error["code"] in ("timed_out", "read_timed_out")
    assert str(error["hint"]).endswith("vmnest cp -r src 'web:/tmp/it'\"'\"'s'")


def _list(value: object) -> list[object]:
    assert isinstance(value, list)
    return value


def _check_progress_and_cancellation(tools: Tools, project: Path) -> None:
    (project / "large").write_bytes(os.urandom(LARGE))
    tools.notes.clear()
    tools.data(FROM, within=tools.open(progress=True), name="web", host_path="large", dest="/tmp/large")
    params = tools.notes[0]["params"]
    assert isinstance(params, dict)
    assert (params["total"], params["message"]) == (LARGE, "large")
    for tool, arguments in (
        (FROM, {"host_path": "large", "dest": "/tmp/other"}),
        (TO, {"src": "/tmp/large", "host_path": "other"}),
    ):
        call = _Impatient(Request(1, "tools/call", {}), era=ERA, send=tools.notes.append)
        with pytest.raises(CancelledError):
            tools.call(tool, within=call, name="web", **arguments)
        assert call.is_cancelled
    assert "other" not in shell(tools, "ls -A /tmp")
    assert not [name for name in os.listdir(project) if "other" in name or name.startswith(".vmnest")]


class _Impatient(Call):
    """Is cancelled as soon as something was copied."""

    def progress(self, reached: float, *, total: float | None = None, message: str | None = None) -> None:
        if reached:
            self.cancel()


def test_a_call_that_is_cancelled_before_it_begins_asks_nobody(tools: Tools, project: Path) -> None:
    call = tools.open()
    call.cancel()
    with pytest.raises(CancelledError):
        tools.call(FROM, within=call, name="nobody", host_path="src", dest="/tmp/x")
