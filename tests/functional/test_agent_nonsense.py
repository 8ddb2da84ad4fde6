"""What no client should send: the agent answers all of it, goes on, and keeps nothing of it."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.agent import Agent
from tests.support.process_client import RemoteProcess, run
from tests.support.sound_agent import SECONDS

SIZE = {"cols": 80, "rows": 24}
METHODS = [b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"PATCH", b"OPTIONS", b"get", b"", b"\xff", b"X" * 100]
PATHS = [
    *[
        b"/healthz",
        b"/v1/exec",
        b"/v1/stats",
        b"/v1/files",
        b"/v1/tree",
        b"/v1/fs/list",
        b"/v1/fs/stat",
        b"/v1/fs/remove",
    ],
    *[b"/v1/processes", b"/v1/processes/", b"/v1/processes/a", b"/v1/processes/a/output", b"/v1/processes/%00/stdin"],
    *[b"/v1/processes/a/signal", b"/v1/processes//output", b"*", b"//", b"/" * 5000, b"/\xff", b"http://x/healthz"],
]
QUERIES = [
    *[b"", b"?", b"?offset=-1", b"?offset=99999999999999999999", b"?offset=1&offset=2", b"?wait=nan", b"?wait=1e9"],
    *[b"?wait=-1", b"?path=%ff%fe", b"?path=%00", b"?path=", b"?%%%", b"?eof=2", b"?path=/nonexistent&mode=99999"],
    b"?" + b"a=b&" * 2000,
]
HEADERS = [
    *[
        b"Host: x",
        b"Content-Length: 5",
        b"Content-Length: 999999999999",
        b"Content-Length: -1",
        b"Content-Length: 5, 6",
    ],
    *[b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"Expect: 100-continue", b"Connection: close"],
    *[b"Range: bytes=9-1", b"If-Range: x", b"vmnest-exec-id: \xff", b"vmnest-sha256: zz", b": no name", b" folded"],
    *[b"a" * 70000, b"Upgrade: websocket"],
]
ORDER = b'{"id": "fuzz", "command": "true", %b}'
BODIES = [
    *[b"", b"{}", b"[]", b"null", b"{", b"\xff\xfe", b'{"id": 1}', b'{"id": "a", "command": "\\u0000"}', b"[" * 100000],
    *[ORDER % member for member in (b'"pty": 1', b'"rlimits": {"nofile": "x"}', b'"user": []', b'"timeout": -1')],
    *[b'{"id": "../x", "command": "true"}', b'{"path": "\\ud800"}', b'{"signal": 1e400}', b"\0" * 3000],
    *[b"5\r\nhello\r\n0\r\n\r\n", b"ffffffffffffffffff\r\n", b"-5\r\n"],
]


def build_nonsense(chance: random.Random) -> bytes:
    """A request that is nearly one, or nothing like one."""
    if chance.random() < 0.1:
        return chance.randbytes(chance.randrange(2000))
    lines = [b"%b %b%b HTTP/1.1" % (chance.choice(METHODS), chance.choice(PATHS), chance.choice(QUERIES))]
    lines += [chance.choice(HEADERS) for _ in range(chance.randrange(4))]
    if chance.random() < 0.7:
        lines.append(b"Content-Length: %d" % chance.randrange(40))
    data = b"\r\n".join(lines) + b"\r\n\r\n" + chance.choice(BODIES)
    if chance.random() < 0.3:  # a byte that fell over on its way
        position = chance.randrange(len(data))
        data = data[:position] + chance.randbytes(1) + data[position + 1 :]
    return data


def test_nonsense_never_ends_or_wedges_the_agent(sound_agent: Agent) -> None:
    chance = random.Random(20_261_130)

    def send(data: bytes) -> bytes:
        with sound_agent.dial(sound_agent.hook_port if b"/v1/stats" in data else None) as connection:
            connection.settimeout(SECONDS)
            with contextlib.suppress(OSError):
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
            answer = b""
            with contextlib.suppress(ConnectionResetError):
                while piece := connection.recv(65536):
                    answer += piece
            return answer

    requests = [build_nonsense(chance) for _ in range(1200)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, requests))
    statuses = [answer[9:12] for answer in answers if answer]
    assert len(statuses) > 600
    assert all(answer.startswith(b"HTTP/1.1 ") for answer in answers if answer)
    assert {status for status in statuses if status.startswith(b"5")} <= {b"501"}
    assert sound_agent.exec("echo", "alive").stdout == b"alive\n"


# Of each member what it may be and what it may not; nothing outside of the working directory is named.
VALUES = [
    None,
    True,
    -1,
    0,
    7,
    2**70,
    1.5,
    "",
    "a",
    "a/b",
    ".",
    "\0",
    "\udc80",
    "\ud800",
    "x" * 300,
    [],
    ["a"],
    [1, 2],
    {},
    {"a": 1},
]
MEMBERS: dict[str, list[object]] = {
    "id": [f"m{number}" for number in range(300)],
    "command": ["true", "sh", "./a", "no-such-program", "/etc/passwd"],
    "args": [["-c", "exit 3"], ["x" * 140_000]],
    "shell": ["true", "exit 4", "kill -9 $$"],
    "cwd": [".", "a", "/no/such"],
    "env": [{"A": "b"}, {"": "b"}, {"A=": "b"}, {"PATH": ""}],
    "user": [os.geteuid(), str(os.geteuid()), "no-such-user"],
    "stdin": ["none", "pipe"],
    "pty": [SIZE, {"cols": 65536, "rows": 1}, {"rows": 1}],
    "timeout": [0.01, 1e-9],
    "output_limit": [0, 1, 1000],
    "rlimits": [{"nofile": 3}, {"nofile": [9, 3]}, {"cpu": 1}, {"as": 1_000_000}, {"nproc": 0}, {"nofile": 2**63 - 1}],
    "retain": ["block", "drop"],
    "signal": ["TERM", "SIGRTMIN+1", "RTMIN+99", 0, 9, 65],
    "cols": [1, 65535],
    "rows": [1, 65535],
    **{name: ["a", "b", "a/b", "a/c"] for name in ("path", "source", "destination")},
    "content": ["YQ==", "YQ="],
    "mode": [0o644, 0o7777, 0o10000],
    "depth": [1, 5],
}  # fmt: skip
FLAGS = ["parents", "exist_ok", "recursive", "missing_ok", "overwrite", "follow", "sha256"]
POSTS = [
    *[
        "/v1/processes",
        "/v1/processes?wait=0",
        "/v1/exec",
        "/v1/fs/read",
        "/v1/fs/write",
        "/v1/fs/stat",
        "/v1/fs/exists",
    ],
    *["/v1/fs/list", "/v1/fs/mkdir", "/v1/fs/remove", "/v1/fs/copy", "/v1/fs/rename", "/v1/fs/chmod"],
    *["/v1/processes/m1/signal", "/v1/processes/m2/resize", "/v1/processes/m3/stdin"],
]


def build_document(chance: random.Random) -> dict[str, object]:
    """A document with the right names, and any values."""
    document: dict[str, object] = {}
    for name, usual in MEMBERS.items():
        if chance.random() < (0.9 if name in ("id", "command", "path", "source", "destination") else 0.15):
            document[name] = chance.choice(usual if chance.random() < 0.9 else VALUES)
    if "shell" in document:
        document.pop("command", None)
        document.pop("args", None)
        document["env"] = {"HOME": "/"}  # what runs the tests has a profile that may take long
    for name in FLAGS:
        if chance.random() < 0.3:
            document[name] = chance.choice([True, False, 1, "yes"])
    return document


def test_documents_of_any_types_are_answered(sound_agent: Agent) -> None:
    chance = random.Random(1130)
    requests = [(chance.choice(POSTS), build_document(chance)) for _ in range(1500)]
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda request: sound_agent.post(*request), requests))
    statuses = {reply.status for reply in replies}
    assert statuses <= {200, 201, 400, 404, 409, 504}
    assert {200, 201, 400, 404, 409} <= statuses
    for document in sound_agent.request("GET", "/v1/processes").json()["processes"]:
        assert RemoteProcess(sound_agent, document["id"]).delete().status == 200


BAD_ORDERS: dict[str, tuple[dict[str, object], str]] = {
    "no id": ({"id": None, "command": "true"}, "bad_argument"),
    "an id with a slash": ({"id": "a/b", "command": "true"}, "bad_argument"),
    "too long an id": ({"id": "x" * 65, "command": "true"}, "bad_argument"),
    "no command": ({}, "bad_argument"),
    "two commands": ({"command": "true", "shell": "true"}, "bad_argument"),
    "not found": ({"command": "no-such-program"}, "command_not_found"),
    "no program": ({"command": "/etc/passwd"}, "not_executable"),
    "no cwd": ({"command": "true", "cwd": "/no/such"}, "cwd_not_found"),
    "too long": ({"command": "true", "args": ["x" * 200_000]}, "argument_too_long"),
    "too long for a terminal": (
        {"command": "true", "args": ["x" * 200_000], "pty": SIZE},
        "argument_too_long",
    ),
    "no size": ({"command": "true", "pty": {"cols": 0, "rows": 1}}, "bad_argument"),
    "no user": ({"command": "true", "user": "no-such-user"}, "no_such_user"),
    "no limit": ({"command": "true", "rlimits": {"nofile": 2**40}}, "bad_argument"),
    "no mode": ({"command": "true", "retain": "maybe"}, "bad_argument"),
    "NUL": ({"command": "true", "env": {"A": "\0"}}, "bad_argument"),
}


@pytest.mark.parametrize(("document", "code"), BAD_ORDERS.values(), ids=list(BAD_ORDERS))
def test_an_order_that_cannot_be_carried_out_starts_nothing_and_leaves_its_id_free(
    sound_agent: Agent, document: dict[str, object], code: str
) -> None:
    name = f"bad-{uuid.uuid4().hex}"
    reply = sound_agent.post("/v1/processes", {"id": name, **document})
    assert (reply.status, reply.json()["code"]) == (400, code)
    assert sound_agent.request("GET", f"/v1/processes/{name}").status == 404
    assert run(sound_agent, "echo", "then", id=name).stdout == b"then\n"
