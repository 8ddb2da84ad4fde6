"""Files, trees and names, asked for over HTTP."""

from __future__ import annotations

import hashlib
import io
import json
import os
import socket
import stat
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guest.agentd import trees, wire
from tests.support import trees as sample
from tests.support.agent import Agent, Reply

ALL_BYTES = bytes(range(256))


def place(path: Path | str | bytes, **query: str) -> str:
    return f"path={quote_from_bytes(os.fsencode(path), safe='')}" + "".join(f"&{k}={v}" for k, v in query.items())


def get(agent: Agent, path: Path | str | bytes, headers: Mapping[str, str] | None = None) -> Reply:
    return agent.request("GET", f"/v1/files?{place(path)}", headers=headers)


def put(agent: Agent, path: Path | str | bytes, data: bytes, *, headers: Mapping[str, str] | None = None) -> Reply:
    return agent.request("PUT", f"/v1/files?{place(path)}", data, headers=headers)


def call(agent: Agent, operation: str, **members: object) -> Reply:
    texts = {key: os.fspath(value) if isinstance(value, Path) else value for key, value in members.items()}
    return agent.post(f"/v1/fs/{operation}", texts)


def done(reply: Reply) -> dict[str, object]:
    assert reply.status == 200, reply.body
    document = reply.json()
    assert isinstance(document, dict)
    return document


def refusal(reply: Reply) -> tuple[int, str]:
    assert sorted(reply.json()) == ["code", "detail"]
    return reply.status, reply.json()["code"]


def list_entries(agent: Agent, **members: object) -> list[dict[str, object]]:
    reply = call(agent, "list", **members)
    assert reply.status == 200, reply.body
    assert reply.headers["content-type"] == "application/x-ndjson"
    *entries, end = [json.loads(line) for line in reply.body.splitlines()]
    assert end == {"end": True, "count": len(entries)}
    return entries


def open_descriptors(agent: Agent) -> int:
    return len(os.listdir(f"/proc/{agent.process.pid}/fd"))


def wait_for(condition: Callable[[], bool], *, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def test_the_features_are_announced(shared_agent: Agent) -> None:
    assert {"files", "tree", "fs"} <= set(shared_agent.request("GET", "/healthz").json()["features"])


# -- content


@pytest.mark.parametrize("size", [0, 1, 65536, 2**20, 2**20 + 1, 5_000_000])
def test_bytes_are_written_and_read_as_they_are(shared_agent: Agent, tmp_path: Path, size: int) -> None:
    data = (ALL_BYTES * (size // 256 + 1))[:size]
    digest = hashlib.sha256(data).hexdigest()
    reply = done(put(shared_agent, tmp_path / "f", data))
    assert reply == {"bytes_written": size, "sha256": digest, "mode": (tmp_path / "f").stat().st_mode & 0o7777}
    back = get(shared_agent, tmp_path / "f")
    assert (back.status, back.body) == (200, data)
    assert back.headers["content-length"] == str(size)
    assert back.headers["content-type"] == "application/octet-stream"
    assert int(back.headers["vmnest-mode"], 8) == reply["mode"]
    assert back.headers["last-modified"].endswith(" GMT")


@pytest.mark.parametrize("name", sample.ODD_NAMES)
def test_any_name_can_be_written_and_read(shared_agent: Agent, tmp_path: Path, name: bytes) -> None:
    path = os.fsencode(tmp_path) + b"/" + name
    done(put(shared_agent, path, name))
    assert os.listdir(os.fsencode(tmp_path)) == [name]
    assert get(shared_agent, path).body == name
    text = path.decode("utf-8", "surrogateescape")
    assert done(call(shared_agent, "stat", path=text))["path"] == text
    assert done(call(shared_agent, "remove", path=text)) == {}
    assert os.listdir(tmp_path) == []


def test_a_relative_path_begins_in_the_working_directory(agent: Agent) -> None:
    assert list_entries(agent, path=".") == []  # which is made when it is needed
    done(put(agent, "a/b", b"x"))
    assert (agent.workdir / "a" / "b").read_bytes() == b"x"
    assert get(agent, "a/b").body == b"x"
    assert [entry["path"] for entry in list_entries(agent, path="a")] == ["a/b"]


@pytest.mark.parametrize(
    "query", ["", "path=", "other=x", "path=a%00b", "path=a&path=b", "path=%zz", "path=a&mode=999"]
)
def test_a_query_that_cannot_be_understood_is_refused(shared_agent: Agent, query: str) -> None:
    for method, route in (("GET", "files"), ("PUT", "files"), ("GET", "tree"), ("PUT", "tree")):
        if "mode" in query and (method, route) != ("PUT", "files"):
            continue
        reply = shared_agent.request(method, f"/v1/{route}?{query}", b"x" if method == "PUT" else None)
        assert reply.status == 400
        assert reply.json()["code"] in {"bad_argument", "bad_request"}


def test_what_is_no_regular_file_is_refused_at_once(shared_agent: Agent, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo", "/dev/zero"):
        assert refusal(get(shared_agent, path)) == (400, "not_a_file")
        assert refusal(put(shared_agent, path, b"x")) == (400, "not_a_file")
    assert refusal(get(shared_agent, tmp_path / "none")) == (404, "file_not_found")


def test_a_file_of_the_kernel_is_read_to_its_end(shared_agent: Agent) -> None:
    reply = get(shared_agent, "/proc/cpuinfo")
    assert reply.status == 200
    assert len(reply.body) == int(reply.headers["content-length"]) > 100


def test_head_tells_the_same_without_the_content(shared_agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    reply = shared_agent.request("HEAD", f"/v1/files?{place(tmp_path / 'f')}")
    whole = get(shared_agent, tmp_path / "f")
    assert (reply.status, reply.body) == (200, b"")
    for name in ("content-length", "etag", "last-modified", "vmnest-mode"):
        assert reply.headers[name] == whole.headers[name]


@pytest.mark.parametrize("seconds", [-1, -(2**33), 2**33, 2**40, 2**50])
def test_a_file_of_any_year_is_read(shared_agent: Agent, seconds: int) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # a file system that keeps such times
        path = Path(folder, "f")
        path.write_bytes(b"x")
        os.utime(path, (seconds, seconds))
        assert get(shared_agent, path).body == b"x"
        assert done(call(shared_agent, "stat", path=path))["mtime"] == path.stat().st_mtime
        assert shared_agent.request("GET", f"/v1/tree?{place(folder)}").status == 200


@pytest.mark.parametrize(("wish", "expected"), [("bytes=2-4", (2, 5)), ("bytes=7-", (7, 10)), ("bytes=-4", (6, 10))])
@pytest.mark.parametrize("scale", [1, 300_000])
def test_a_part_of_a_file_is_read(
    shared_agent: Agent, tmp_path: Path, wish: str, expected: tuple[int, int], scale: int
) -> None:
    data = os.urandom(10 * scale)
    (tmp_path / "f").write_bytes(data)
    start, end = expected[0] * scale, expected[1] * scale
    if wish == "bytes=2-4":
        wish = f"bytes={start}-{end - 1}"
    elif wish == "bytes=7-":
        wish = f"bytes={start}-"
    else:
        wish = f"bytes=-{len(data) - start}"
    reply = get(shared_agent, tmp_path / "f", {"Range": wish})
    assert reply.status == 206
    assert reply.headers["content-range"] == f"bytes {start}-{end - 1}/{len(data)}"
    assert reply.body == data[start:end]


def test_a_part_that_is_not_there_is_a_416(shared_agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    reply = get(shared_agent, tmp_path / "f", {"Range": "bytes=5-"})
    assert refusal(reply) == (416, "bad_argument")
    assert "only 5 bytes" in reply.json()["detail"]


def test_a_part_of_another_file_is_refused_or_the_whole_is_sent(shared_agent: Agent, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"12345")
    tag = get(shared_agent, path).headers["etag"]
    part = {"Range": "bytes=1-1"}
    assert get(shared_agent, path, {**part, "If-Match": tag}).status == 206
    assert get(shared_agent, path, {**part, "If-Range": tag}).status == 206
    path.write_bytes(b"changed")
    assert refusal(get(shared_agent, path, {**part, "If-Match": tag})) == (412, "file_changed")
    assert refusal(get(shared_agent, path, {"If-Match": tag})) == (412, "file_changed")
    reply = get(shared_agent, path, {**part, "If-Range": tag})
    assert (reply.status, reply.body) == (200, b"changed")
    assert get(shared_agent, path, {**part, "If-Range": "Mon, 30 Nov 2026 01:00:00 GMT"}).status == 200


@given(wish=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20))
@settings(max_examples=50, deadline=None)
def test_no_range_breaks_the_agent(shared_agent: Agent, wish: str) -> None:
    path = shared_agent.workdir.parent / "ranged"
    path.write_bytes(b"0123456789")
    reply = get(shared_agent, path, {"Range": f"bytes={wish}"})
    assert reply.status in {200, 206, 416}


def test_a_mode_is_set_or_kept(shared_agent: Agent, tmp_path: Path) -> None:
    url = f"/v1/files?{place(tmp_path / 'f', mode='0751')}"
    assert done(shared_agent.request("PUT", url, b"x"))["mode"] == 0o751
    assert done(put(shared_agent, tmp_path / "f", b"y"))["mode"] == 0o751
    assert (tmp_path / "f").stat().st_mode & 0o7777 == 0o751


def test_a_checksum_is_compared_before_the_file_is_seen(shared_agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    right, wrong = hashlib.sha256(b"new").hexdigest(), hashlib.sha256(b"old").hexdigest()
    reply = put(shared_agent, tmp_path / "f", b"new", headers={"vmnest-sha256": wrong})
    assert refusal(reply) == (409, "checksum_mismatch")
    assert (tmp_path / "f").read_text() == "old"
    assert os.listdir(tmp_path) == ["f"]
    assert refusal(put(shared_agent, tmp_path / "f", b"new", headers={"vmnest-sha256": "x"})) == (400, "bad_argument")
    assert done(put(shared_agent, tmp_path / "f", b"new", headers={"vmnest-sha256": right.upper()}))["sha256"] == right


def test_a_part_is_not_taken_for_the_whole(shared_agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("12345")
    reply = put(shared_agent, tmp_path / "f", b"45", headers={"Content-Range": "bytes 3-4/5"})
    assert refusal(reply) == (400, "bad_argument")
    assert (tmp_path / "f").read_text() == "12345"


def test_content_of_unknown_length_is_taken_in_chunks(shared_agent: Agent, tmp_path: Path) -> None:
    with shared_agent.dial() as connection:
        head = (
            f"PUT /v1/files?{place(tmp_path / 'f')} HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        )
        connection.sendall(head.encode() + b"3\r\nabc\r\n" + b"2\r\nde\r\n" + b"0\r\n\r\n")
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 200 ")
    assert (tmp_path / "f").read_bytes() == b"abcde"


@pytest.mark.parametrize("framing", ["Content-Length: 2000000", "Transfer-Encoding: chunked"])
def test_a_body_that_breaks_off_leaves_the_old_file_and_nothing_else(
    shared_agent: Agent, tmp_path: Path, framing: str
) -> None:
    (tmp_path / "f").write_text("old")
    before = open_descriptors(shared_agent)
    for route in ("files", "tree"):
        with shared_agent.dial() as connection:
            target = tmp_path / ("f" if route == "files" else ".")
            connection.sendall(f"PUT /v1/{route}?{place(target)} HTTP/1.1\r\n{framing}\r\n\r\n".encode())
            data = b"".join(sample_archive("f", b"x" * 1_000_000))[:600_000]
            connection.sendall(data if "Length" in framing else b"%x\r\n%b" % (len(data) + 9, data))
            wait_for(lambda: len(os.listdir(tmp_path)) == 2)
        wait_for(lambda: os.listdir(tmp_path) == ["f"])
    assert (tmp_path / "f").read_text() == "old"
    wait_for(lambda: open_descriptors(shared_agent) <= before)


def sample_archive(name: str, content: bytes) -> list[bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    return [info.tobuf(), content, bytes(-len(content) % 512 + 1024)]


def test_a_reader_that_goes_away_costs_nothing(shared_agent: Agent, tmp_path: Path) -> None:
    with open(tmp_path / "large", "wb") as stream:
        stream.truncate(200_000_000)
    before = open_descriptors(shared_agent)
    for route, target in (("files", tmp_path / "large"), ("tree", tmp_path)):
        for _ in range(5):
            with shared_agent.dial() as connection:
                connection.sendall(f"GET /v1/{route}?{place(target)} HTTP/1.1\r\n\r\n".encode())
                assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
    wait_for(lambda: open_descriptors(shared_agent) <= before)


def test_a_file_that_shrinks_while_it_is_sent_ends_the_answer_early(shared_agent: Agent, tmp_path: Path) -> None:
    path = tmp_path / "large"
    with open(path, "wb") as stream:
        stream.truncate(50_000_000)
    with shared_agent.dial() as connection:
        connection.sendall(f"GET /v1/files?{place(path)} HTTP/1.1\r\n\r\n".encode())
        received = len(connection.recv(1000))
        os.truncate(path, 1000)
        while data := connection.recv(1 << 20):
            received += len(data)
    assert received < 50_000_000


def test_many_writers_of_one_file_leave_the_content_of_one(shared_agent: Agent, tmp_path: Path) -> None:
    contents = [bytes([number]) * 100_000 for number in range(8)]

    def write(data: bytes) -> None:
        for _ in range(5):
            done(put(shared_agent, tmp_path / "f", data))

    threads = [threading.Thread(target=write, args=(data,)) for data in contents]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        reply = get(shared_agent, tmp_path / "f")
        assert reply.status == 404 or reply.body in contents
    for thread in threads:
        thread.join()
    assert os.listdir(tmp_path) == ["f"]


def test_memory_of_the_agent_stays_flat(agent: Agent, tmp_path: Path) -> None:
    def peak() -> int:
        with open(f"/proc/{agent.process.pid}/status") as stream:
            return next(int(line.split()[1]) for line in stream if line.startswith("VmHWM:"))

    done(put(agent, tmp_path / "warm", b"x"))  # loads what it needs
    before = peak()
    with open(tmp_path / "large", "wb") as stream:
        stream.truncate(100 * 2**20)
    with agent.dial() as connection:
        connection.sendall(f"GET /v1/files?{place(tmp_path / 'large')} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
        while connection.recv(1 << 20):
            """Read to the end."""
    block = bytes(2**20)
    with agent.dial() as connection:
        head = f"PUT /v1/files?{place(tmp_path / 'copy')} HTTP/1.1\r\nContent-Length: {100 * len(block)}\r\n\r\n"
        connection.sendall(head.encode())
        for _ in range(100):
            connection.sendall(block)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
    assert peak() - before < 8 * 1024  # KiB


# -- the disk


def start_with_mount(start_agent: Callable[..., Agent], mount: str) -> Agent:
    """An agent that sees a mount of its own."""
    namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*namespace, "mount -t tmpfs none /mnt"], capture_output=True, check=False).returncode != 0:
        pytest.skip("mounts in user namespaces are refused here")
    return start_agent(wrapper=[*namespace, f'{mount} && exec "$@"', "sh"])


def test_on_a_full_disk_the_old_content_stays_and_nothing_is_left_over(
    start_agent: Callable[..., Agent], tmp_path: Path
) -> None:
    (tmp_path / "small").mkdir()
    agent = start_with_mount(start_agent, f"mount -t tmpfs -o size=2m none {tmp_path / 'small'}")
    old, new = b"o" * 500_000, b"n" * 3_000_000
    done(put(agent, tmp_path / "small" / "f", old))
    done(put(agent, tmp_path / "new", new))
    archive = b"".join(sample_archive("f", new))
    replies = [
        put(agent, tmp_path / "small" / "f", new),
        agent.request("PUT", f"/v1/tree?{place(tmp_path / 'small')}", archive),
        call(agent, "copy", source=tmp_path / "new", destination=tmp_path / "small" / "f"),
        call(agent, "rename", source=tmp_path / "new", destination=tmp_path / "small" / "f"),
    ]
    assert [refusal(reply) for reply in replies] == [(507, "no_space")] * 4
    assert get(agent, tmp_path / "small" / "f").body == old
    assert [entry["name"] for entry in list_entries(agent, path=tmp_path / "small")] == ["f"]
    assert get(agent, tmp_path / "new").body == new
    done(put(agent, tmp_path / "small" / "g", old))  # what was given up takes no space


def test_a_file_that_is_a_mount_point_is_written_in_place(start_agent: Callable[..., Agent], tmp_path: Path) -> None:
    for name in ("under", "over"):
        (tmp_path / name).write_text("old and long")
    agent = start_with_mount(start_agent, f"mount --bind {tmp_path / 'over'} {tmp_path / 'under'}")
    assert done(put(agent, tmp_path / "under", b"new"))["bytes_written"] == 3
    assert get(agent, tmp_path / "under").body == b"new"
    assert ((tmp_path / "over").read_text(), (tmp_path / "under").read_text()) == ("new", "old and long")
    assert sorted(os.listdir(tmp_path)) == ["agent-1", "over", "under"]


# -- trees


def test_a_tree_goes_out_and_comes_back_as_it_was(shared_agent: Agent, tmp_path: Path) -> None:
    sample.build(tmp_path / "source")
    reply = shared_agent.request("GET", f"/v1/tree?{place(tmp_path / 'source')}")
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/x-tar"
    assert "content-length" not in reply.headers
    trees.unpack([reply.body], os.fsencode(tmp_path / "copy"))
    assert sample.look(tmp_path / "copy") == sample.look(tmp_path / "source")
    data = b"".join(trees.pack(os.fsencode(tmp_path / "copy")))
    summary = done(shared_agent.request("PUT", f"/v1/tree?{place(tmp_path / 'back')}", data))
    assert sample.look(tmp_path / "back") == sample.look(tmp_path / "source")
    # One of its files has two names: the second one is a link.
    seen = sample.look(tmp_path / "source")
    kinds = [each[0] for each in seen.values()]
    sizes = [len(each[2]) for each in seen.values() if isinstance(each[2], bytes) and each[0] == stat.S_IFREG]
    second = (tmp_path / "source" / "second name").stat().st_size
    assert summary == {
        "files": kinds.count(stat.S_IFREG) - 1,
        "directories": kinds.count(stat.S_IFDIR) + 1,
        "links": kinds.count(stat.S_IFLNK) + 1,
        "bytes": sum(sizes) - second,
        "skipped": [],
    }


def test_patterns_leave_out_what_is_asked(shared_agent: Agent, tmp_path: Path) -> None:
    for path in ("a/x.pyc", "a/x.py", "build/y", ".git/z"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    reply = shared_agent.request("GET", f"/v1/tree?{place(tmp_path)}&exclude=*.pyc&exclude=%2Fbuild&exclude=.git%2F")
    with tarfile.open(fileobj=io.BytesIO(reply.body)) as archive:
        assert archive.getnames() == [".", "a", "a/x.py"]
    refused = shared_agent.request("GET", f"/v1/tree?{place(tmp_path)}&exclude=")
    assert refusal(refused) == (400, "bad_argument")


def test_what_is_left_out_is_told(shared_agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    os.mkfifo(tmp_path / "source" / "fifo \udcff")
    (tmp_path / "source" / "out").symlink_to("/etc")
    data = b"".join(trees.pack(os.fsencode(tmp_path / "source")))
    document = done(shared_agent.request("PUT", f"/v1/tree?{place(tmp_path / 'copy')}", data))
    assert document["skipped"] == [
        {"path": "fifo \udcff", "reason": "a named pipe"},
        {"path": "out", "reason": trees.LEADS_OUT},
    ]


def test_a_long_list_of_what_was_left_out_ends_with_a_number(shared_agent: Agent, tmp_path: Path) -> None:
    info = tarfile.TarInfo("link")
    info.type, info.linkname = tarfile.SYMTYPE, "/"
    data = info.tobuf() * 1005 + bytes(1024)
    skipped = done(shared_agent.request("PUT", f"/v1/tree?{place(tmp_path / 'copy')}", data))["skipped"]
    assert isinstance(skipped, list)
    assert len(skipped) == 1001
    assert skipped[-1] == {"path": "", "reason": "and 5 more"}


def test_an_archive_that_leads_out_is_refused(shared_agent: Agent, tmp_path: Path) -> None:
    data = b"".join(sample_archive("../outside", b"x"))
    reply = shared_agent.request("PUT", f"/v1/tree?{place(tmp_path / 'root')}", data)
    assert refusal(reply) == (400, "unsafe_path")
    assert os.listdir(tmp_path) == ["root"]


@pytest.mark.parametrize("data", [b"", b"garbage" * 300, b"".join(sample_archive("f", b"x" * 5000))[:3000], bytes(512)])
def test_what_is_no_archive_is_refused(shared_agent: Agent, tmp_path: Path, data: bytes) -> None:
    reply = shared_agent.request("PUT", f"/v1/tree?{place(tmp_path / 'root')}", data)
    assert refusal(reply) == (400, "bad_request")


@pytest.mark.parametrize(("name", "expected"), [("none", (404, "file_not_found")), ("f", (400, "not_a_directory"))])
def test_a_tree_that_is_no_directory_is_refused(
    shared_agent: Agent, tmp_path: Path, name: str, expected: tuple[int, str]
) -> None:
    (tmp_path / "f").touch()
    assert refusal(shared_agent.request("GET", f"/v1/tree?{place(tmp_path / name)}")) == expected
    if name == "f":
        data = b"".join(sample_archive("x", b""))
        reply = shared_agent.request("PUT", f"/v1/tree?{place(tmp_path / name)}", data)
        assert refusal(reply) == (400, "not_a_directory")


@given(st.binary(max_size=1500))
@settings(max_examples=50, deadline=None)
def test_no_archive_breaks_the_agent(shared_agent: Agent, data: bytes) -> None:
    folder = shared_agent.workdir.parent / "fuzzed"
    assert refusal(shared_agent.request("PUT", f"/v1/tree?{place(folder)}", data))[0] == 400


# -- names


def test_names_are_made_listed_moved_and_removed(shared_agent: Agent, tmp_path: Path) -> None:
    assert done(call(shared_agent, "mkdir", path=tmp_path / "a" / "b", mode=0o700)) == {}
    assert done(put(shared_agent, tmp_path / "a" / "b" / "f", b"12345"))["bytes_written"] == 5
    assert done(call(shared_agent, "copy", source=tmp_path / "a", destination=tmp_path / "c", recursive=True)) == {}
    assert done(call(shared_agent, "rename", source=tmp_path / "c" / "b", destination=tmp_path / "d")) == {}
    assert done(call(shared_agent, "chmod", path=tmp_path / "d", mode=0o711, recursive=True)) == {}
    entries = list_entries(shared_agent, path=tmp_path, depth=9)
    assert [(str(entry["path"])[len(str(tmp_path)) :], entry["mode"]) for entry in entries] == [
        ("/a", (tmp_path / "a").stat().st_mode & 0o7777),
        ("/a/b", 0o700),
        ("/a/b/f", (tmp_path / "a" / "b" / "f").stat().st_mode & 0o7777),
        ("/c", (tmp_path / "c").stat().st_mode & 0o7777),
        ("/d", 0o711),
        ("/d/f", 0o711),
    ]
    entry = done(call(shared_agent, "stat", path=tmp_path / "d" / "f", sha256=True))
    assert entry["sha256"] == hashlib.sha256(b"12345").hexdigest()
    assert done(call(shared_agent, "exists", path=tmp_path / "d")) == {"exists": True}
    assert done(call(shared_agent, "remove", path=tmp_path / "d", recursive=True)) == {}
    assert done(call(shared_agent, "exists", path=tmp_path / "d")) == {"exists": False}
    assert done(call(shared_agent, "remove", path=tmp_path / "d", missing_ok=True)) == {}


def test_what_could_not_be_copied_is_told(shared_agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    os.mkfifo(tmp_path / "a" / "fifo")
    reply = call(shared_agent, "copy", source=tmp_path / "a", destination=tmp_path / "b", recursive=True)
    assert done(reply) == {"skipped": [{"path": "fifo", "reason": "a named pipe"}]}


@pytest.mark.parametrize(
    ("operation", "members", "expected"),
    [
        ("stat", {"path": "{0}/none"}, (404, "file_not_found")),
        ("list", {"path": "{0}/none"}, (404, "file_not_found")),
        ("list", {"path": "{0}/f"}, (400, "not_a_directory")),
        ("list", {"path": "{0}", "depth": 0}, (400, "bad_argument")),
        ("list", {"path": "{0}", "depth": "x"}, (400, "bad_argument")),
        ("mkdir", {"path": "{0}", "exist_ok": False}, (409, "file_exists")),
        ("mkdir", {"path": "{0}/x", "mode": 65536}, (400, "bad_argument")),
        ("remove", {"path": "{0}"}, (409, "directory_not_empty")),
        ("remove", {"path": "{0}/none"}, (404, "file_not_found")),
        ("copy", {"source": "{0}/f", "destination": "{0}/f"}, (400, "bad_argument")),
        ("copy", {"source": "{0}/f"}, (400, "bad_argument")),
        ("rename", {"source": "{0}/f", "destination": "{0}/d", "overwrite": False}, (409, "file_exists")),
        ("chmod", {"path": "{0}/f"}, (400, "bad_argument")),
        ("chmod", {"path": "{0}/none", "mode": 0o600}, (404, "file_not_found")),
        ("stat", {"path": 5}, (400, "bad_argument")),
        ("stat", {"path": ""}, (400, "bad_argument")),
        ("stat", {"path": "a\0b"}, (400, "bad_argument")),
        ("stat", {"path": "\ud800"}, (400, "bad_argument")),
        ("stat", {"path": "x", "follow": "yes"}, (400, "bad_argument")),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_reason(
    shared_agent: Agent, tmp_path: Path, operation: str, members: dict[str, object], expected: tuple[int, str]
) -> None:
    (tmp_path / "f").touch()
    (tmp_path / "d").mkdir()
    filled = {key: value.format(tmp_path) if isinstance(value, str) else value for key, value in members.items()}
    assert refusal(call(shared_agent, operation, **filled)) == expected
    assert sorted(os.listdir(tmp_path)) == ["d", "f"]


def test_a_long_list_arrives_whole(shared_agent: Agent, tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / f"{number:05}").touch()
    entries = list_entries(shared_agent, path=tmp_path)
    assert [entry["name"] for entry in entries] == [f"{number:05}" for number in range(3000)]


def test_health_is_answered_while_a_tree_is_packed(shared_agent: Agent, tmp_path: Path) -> None:
    with open(tmp_path / "large", "wb") as stream:
        stream.truncate(300_000_000)
    with shared_agent.dial() as connection:
        connection.sendall(f"GET /v1/tree?{place(tmp_path)} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
        reader = threading.Thread(target=drain, args=(connection,))
        reader.start()
        begin = time.monotonic()
        for _ in range(20):
            assert shared_agent.request("GET", "/healthz").status == 200
        assert time.monotonic() - begin < 5
        connection.shutdown(socket.SHUT_RDWR)
        reader.join()


def drain(connection: socket.socket) -> None:
    try:
        while connection.recv(1 << 16):
            """Go on."""
    except OSError:
        return


def test_the_routes_are_those_of_the_wire() -> None:
    from guest.agentd import file_routes

    served = file_routes.FileApi(workdir=b"/work").routes()
    assert {wire.FILES_PATH, wire.TREE_PATH} < set(served)
    assert all(path in {wire.FILES_PATH, wire.TREE_PATH} or path.startswith(wire.FS_PREFIX) for path in served)
