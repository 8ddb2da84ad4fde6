"""Everything that can be wrong with the control plane, injected by a scripted server and seen by a real process.

For each fault: one line that says what happened and one that says what to do, the documented exit status, the same
as JSON, no traceback, and nothing left behind.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

import pytest

from tests.support.authority import Authority
from tests.support.cli import Cli, Done, bare_environ
from tests.support.control import IMAGE_ARN, vm
from tests.support.paths import ROOT
from tests.support.peers import Answer, HangUp, Peer, Raw, Request, Serve, Step, json_answer, serving
from vmnest import errors
from vmnest.sandbox import launch

KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret-of-the-key"}
RECORD = {"microvm_id": "microvm-1", "endpoint": "host", "region": "us-east-1"}
CREATE = ("create", "new", "--image", IMAGE_ARN, "--wait-timeout", "4")
HTML = b"<html><head><title>502 Bad\nGateway</title></head><body>x</body></html>"


class Always(list[Step]):
    """A script that answers the same for ever."""

    def pop(self, index: object = 0) -> Step:
        return self[0]


@dataclass
class Fault:
    """What the server does, and what the user then reads.

    ``answers`` are given in turn, the last of them for ever. ``attempts`` is how often the call is made, None if that
    depends on chance. ``is_unknown``: a MicroVM may have been started, so the name stays recorded.
    """

    answers: tuple[Step, ...]
    code: str
    text: str
    hint: str
    attempts: int | None = 1
    is_unknown: bool = False


def refusal(status: int, kind: str | None, message: str | None, **headers: str) -> Answer:
    named = {} if kind is None else {"x-amzn-errortype": kind}
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return json_answer(status, {"message": message}, headers={**named, "x-amzn-requestid": "request-1", **fields})


def late(request: Request) -> Answer:
    """A service whose clock is ten minutes ahead of every signature."""
    text = "Signature expired: 20260101T000000Z is now earlier than 20260101T000500Z (20260101T001000Z - 5 min.)"
    return refusal(403, "InvalidSignatureException", text, Date=formatdate(time.time() + 600))


PAGE = [("Content-Type", "text/html")]
FAULTS = {
    "unknown key": Fault(
        (refusal(403, "UnrecognizedClientException", "The security token included in the request is invalid."),),
        "signature_refused",
        "The security token included in the request is invalid",
        "AWS does not know the access key.*These are from: AWS_ACCESS_KEY_ID",
    ),
    "wrong secret": Fault(
        (refusal(403, "InvalidSignatureException", "The request signature we calculated does not match"),),
        "signature_refused",
        "does not match",
        "secret key is not the access key's.*from: AWS_ACCESS_KEY_ID",
    ),
    "expired session": Fault(
        (refusal(403, "ExpiredTokenException", "The security token included in the request is expired"),),
        "credentials_expired",
        "is expired",
        "aws sso login",
    ),
    "not allowed": Fault(
        (refusal(403, "AccessDeniedException", "User: x is not authorized to perform: lambda:RunMicrovm"),),
        "access_denied",
        "not authorized to perform: lambda:RunMicrovm",
        "Allow the named action",
    ),
    "wrong region": Fault(
        (refusal(403, "AccessDeniedException", None),), "access_denied", "gave no reason", "region us-east-1"
    ),
    "clock": Fault((late,), "clock_skew", "clock is (599|600|601) s behind", "Set the clock", attempts=2),
    "throttled for long": Fault(
        (refusal(429, "ThrottlingException", "Rate exceeded", Retry_After="61"),),
        "throttled",
        "Rate exceeded",
        "fewer calls",
    ),
    "throttled on and on": Fault(
        (refusal(429, "ThrottlingException", "Rate exceeded", Retry_After="2"),),
        "throttled",
        "Rate exceeded",
        "fewer calls",
        attempts=None,
    ),
    "quota": Fault(
        (refusal(402, "ServiceQuotaExceededException", "The base maximum allocated memory limit has been reached"),),
        "quota_exceeded",
        "memory limit has been reached",
        "End sandboxes that nobody needs",
    ),
    "page of 502": Fault(
        (Answer(502, HTML, PAGE),), "service_fault", "502 Bad Gateway", "Try again", attempts=5, is_unknown=True
    ),
    "page of 404": Fault((Answer(404, HTML, PAGE),), "service_error", "HTTP 404", "check the endpoint's URL"),
    "page of 403": Fault((Answer(403, HTML, PAGE),), "access_denied", "HTTP 403", "check the endpoint's URL"),
    "page of success": Fault(
        (Answer(200, HTML, PAGE),), "answer_invalid", "is not JSON", "no proxy or login page", is_unknown=True
    ),
    "empty success": Fault(
        (Answer(200, b"", [("Content-Type", "application/json")]),),
        "answer_invalid",
        "the answer is not",
        "is the service's endpoint",
        is_unknown=True,
    ),
    "answer without its members": Fault(
        (json_answer(200, {"microvmId": None}),), "answer_invalid", "the answer is not", "endpoint", is_unknown=True
    ),
    "null message": Fault(
        (refusal(500, "InternalServerException", None),),
        "service_fault",
        "gave no reason",
        "Try again",
        attempts=5,
        is_unknown=True,
    ),
    "empty 503": Fault((Answer(503),), "service_fault", "HTTP 503", "Try again", attempts=5, is_unknown=True),
    "fault": Fault(
        (refusal(500, "InternalServerException", "internal"),),
        "service_fault",
        "internal",
        "Try again",
        attempts=5,
        is_unknown=True,
    ),
    "redirect": Fault((Answer(301, b"", [("Location", "https://x")]),), "service_error", "HTTP 301", "has moved"),
    "hang-up": Fault(
        (HangUp(),), "connection_lost", "without an answer", "this machine's network", attempts=5, is_unknown=True
    ),
    "cut": Fault(
        (Raw((b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",)),),
        "connection_lost",
        "99 bytes are missing",
        "this machine's network",
        attempts=5,
        is_unknown=True,
    ),
    "not HTTP": Fault(
        (Raw((b"SSH-2.0-OpenSSH_9.6\r\n",)),),
        "transport",
        "is not HTTP",
        "scheme and port",
        attempts=5,
        is_unknown=True,
    ),
}


@dataclass
class Faulty:
    """The command line of somebody whose control plane is ``peer``."""

    cli: Cli
    peer: Peer
    home: Path

    @property
    def names(self) -> list[str]:
        """What is recorded."""
        return sorted(json.loads((self.home / ".agent_sandbox" / "state.json").read_text())["sandboxes"])

    @property
    def attempts(self) -> int:
        """How many requests came since this was asked last."""
        count = len(self.peer.requests)
        self.peer.requests.clear()
        return count


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[Callable[..., Faulty]]:
    """Makes one; takes the steps of the server's script, of which the last is for ever."""
    home = tmp_path / "home"
    (home / ".agent_sandbox").mkdir(parents=True)
    (home / ".agent_sandbox" / "state.json").write_text(json.dumps({"sandboxes": {"web": RECORD}}))
    with ExitStack() as stack:

        def build(*steps: Step, **environ: str) -> Faulty:
            peer = stack.enter_context(serving())
            peer.script = Always(steps)
            base = {**bare_environ(home), **KEYS, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": peer.url}
            return Faulty(Cli({**base, **environ}), peer, home)

        yield build


def check_text(done: Done, *, text: str, hint: str, status: int) -> None:
    """One line of error and then the remedy, and nothing else anywhere.

    The remedy is a line, or two if the first ends with a command to type.
    """
    assert done.status == status, done.remarks
    assert done.out == b""
    assert "Traceback" not in done.remarks
    lines = done.remarks.splitlines()
    assert len(lines) in (2, 3), done.remarks
    assert lines[0].startswith("vmnest: ")
    assert all(line.startswith("  ") for line in lines[1:]), done.remarks
    assert re.search(text, lines[0]), lines[0]
    assert re.search(hint, " ".join(lines[1:])), done.remarks
    assert "secret-of-the-key" not in done.remarks


def check_json(done: Done, *, code: str, text: str, hint: str, status: int) -> None:
    assert done.status == status
    error = done.error
    assert error["code"] == code
    assert re.search(text, error["message"])
    assert re.search(hint, error["hint"])
    (kind,) = [kind for kind in errors.iter_classes() if kind.code == code and kind is not errors.NotFoundError]
    assert error["retryable"] is kind.retryable


# A look and a command have time enough for that one: only a launch ends in the middle of its waits.
LOOKED_AT = [name for name in FAULTS if name != "throttled on and on"]


@pytest.mark.parametrize("name", LOOKED_AT, ids=lambda name: name)
def test_a_look_at_a_sandbox(faulty: Callable[..., Faulty], name: str) -> None:
    fault = FAULTS[name]
    made = faulty(*fault.answers)
    check_text(made.cli("ps", "web"), text=fault.text, hint=fault.hint, status=1)
    assert made.attempts == fault.attempts
    if fault.attempts != 5:  # its waits take a second, and JSON has no part in them
        done = made.cli("ps", "web", "--json")
        check_json(done, code=fault.code, text=fault.text, hint=fault.hint, status=1)
    assert made.names == ["web"]


@pytest.mark.parametrize("name", ["wrong secret", "wrong region", "clock", "quota", "page of success", "hang-up"])
def test_a_command_in_a_sandbox(faulty: Callable[..., Faulty], name: str) -> None:
    fault = FAULTS[name]
    made = faulty(*fault.answers)
    check_text(made.cli("exec", "web", "--", "true"), text=fault.text, hint=fault.hint, status=125)
    assert made.attempts == fault.attempts


@pytest.mark.parametrize("name", FAULTS, ids=lambda name: name)
def test_making_a_sandbox_leaves_nothing_behind(faulty: Callable[..., Faulty], name: str) -> None:
    fault = FAULTS[name]
    made = faulty(*fault.answers)
    started = time.monotonic()
    done = made.cli(*CREATE)
    # 4 s for the launch, and then what it takes to clean up, which has its own end.
    assert time.monotonic() - started < 4 + launch.CLEANUP_SECONDS
    if not fault.is_unknown:
        check_text(done, text=fault.text, hint=fault.hint, status=1)
        assert made.names == ["web"]
        assert fault.attempts in (None, made.attempts)
        return
    check_text(done, text=fault.text, hint=f"{fault.hint}.*end it with: vmnest rm new", status=1)
    tokens = {json.loads(request.body)["clientToken"] for request in made.peer.requests}
    assert len(tokens) == 1, "all of it was one and the same launch"
    assert made.names == ["new", "web"], "the name leads to what may run"
    made.peer.requests.clear()
    made.peer.script = Always([lambda request: json_answer(200, {} if request.method == "DELETE" else vm())])
    assert made.cli("rm", "new").status == 0
    run, look, terminate = made.peer.requests
    assert look.method == "GET"  # what has ended before is told from what is ended now
    assert json.loads(run.body)["clientToken"] in tokens
    assert (terminate.method, terminate.target) == ("DELETE", "/2025-09-09/microvms/microvm-1")
    assert made.names == ["web"]


def test_a_list_tells_of_each(faulty: Callable[..., Faulty]) -> None:
    made = faulty(FAULTS["wrong secret"].answers[0])
    done = made.cli("ls")
    assert done.status == 0
    assert re.search(r"^web +UNKNOWN ", done.text, re.MULTILINE)
    assert "does not match" in done.remarks
    (listed,) = json.loads(made.cli("ls", "--json").out)["sandboxes"]
    assert listed["error"]["code"] == "signature_refused"


# -- what passes -------------------------------------------------------------------------------------------------------


class Then(list[Step]):
    """A script whose last step is for ever."""

    def pop(self, index: int = 0) -> Step:  # type: ignore[override]
        return super().pop(0) if len(self) > 1 else self[0]


def test_a_clock_that_is_off_is_corrected_once_for_a_command(faulty: Callable[..., Faulty]) -> None:
    made = faulty()
    made.peer.script = Then([late, json_answer(200, vm())])
    done = made.cli("ps", "web", "--json")
    assert done.data["state"] == "RUNNING"
    first, second = (request.get("x-amz-date") for request in made.peer.requests)
    assert first is not None
    assert second is not None
    ahead = time.mktime(time.strptime(second, "%Y%m%dT%H%M%SZ")) - time.mktime(time.strptime(first, "%Y%m%dT%H%M%SZ"))
    assert 595 < ahead < 605


def test_the_wait_that_a_throttled_call_is_told_is_kept(faulty: Callable[..., Faulty]) -> None:
    made = faulty()
    throttled = refusal(429, "ThrottlingException", "Rate exceeded", Retry_After="1")
    made.peer.script = Then([throttled, json_answer(200, vm())])
    started = time.monotonic()
    assert made.cli("ps", "web").status == 0
    assert time.monotonic() - started >= 1
    assert made.attempts == 2


QUOTA = refusal(402, "ServiceQuotaExceededException", "full")  # ends a launch at once, so that it is a short test
VERSION = {
    "imageArn": IMAGE_ARN,
    "imageVersion": "2.0",
    "state": "SUCCESSFUL",
    "status": "ACTIVE",
    "baseImageArn": "arn:aws:lambda:us-east-1:aws:microvm-image:al2023-1",
    "buildRoleArn": "arn:aws:iam::111122223333:role/build",
    "codeArtifact": {"uri": "s3://bucket/key"},
    "createdAt": 1789463942.026,
    "updatedAt": 1789463943.026,
}


def runs(made: Faulty) -> list[Request]:
    return [request for request in made.peer.requests if request.method == "POST"]


@pytest.mark.parametrize(
    "passing",
    [
        [refusal(400, "ValidationException", "The role defined for the function cannot be assumed by Lambda.")],
        [refusal(500, "InsufficientCapacityException", "no room")],
        [refusal(404, "ResourceNotFoundException", "No active version found for MicroVM image x and version 2.0"),
         json_answer(200, VERSION)],
    ],
    ids=["role", "capacity", "version"],
)  # fmt: skip
def test_what_passes_is_waited_for_in_the_same_launch(faulty: Callable[..., Faulty], passing: list[Step]) -> None:
    made = faulty()
    made.peer.script = Then([*passing, *passing, QUOTA])
    done = made.cli("create", "new", "--image", IMAGE_ARN, "--image-version", "2.0", "--json")
    assert done.error["code"] == "quota_exceeded"
    assert len(runs(made)) == 3
    assert len({json.loads(request.body)["clientToken"] for request in runs(made)}) == 1
    assert made.names == ["web"]


def test_what_does_not_pass_in_time_says_so(faulty: Callable[..., Faulty]) -> None:
    made = faulty(refusal(500, "InsufficientCapacityException", "no room"))
    check_text(made.cli(*CREATE), text="no room", hint="in another region", status=1)
    made = faulty(refusal(400, "ValidationException", "The role x cannot be assumed by Lambda."))
    check_text(made.cli(*CREATE), text="cannot be assumed", hint="trust lambda.amazonaws.com", status=1)
    assert made.names == ["web"]


def test_a_version_that_is_not_active_is_not_waited_for(faulty: Callable[..., Faulty]) -> None:
    made = faulty()
    missing = refusal(404, "ResourceNotFoundException", "No active version found for MicroVM image x and version 2.0")
    made.peer.script = Then([missing, json_answer(200, {**VERSION, "status": "INACTIVE"})])
    done = made.cli(*CREATE, "--image-version", "2.0")
    check_text(done, text="No active version found", hint="SUCCESSFUL and ACTIVE", status=3)
    assert len(runs(made)) == 1
    assert made.names == ["web"]


# -- no connection -----------------------------------------------------------------------------------------------------


def test_nobody_there(faulty: Callable[..., Faulty], refused_port: int) -> None:
    made = faulty(AWS_ENDPOINT_URL=f"http://127.0.0.1:{refused_port}")
    for line, status in ((("ps", "web"), 1), (("exec", "web", "--", "true"), 125), (CREATE, 1)):
        check_text(made.cli(*line), text="Connection refused", hint="this machine's network", status=status)
    assert made.cli("ps", "web", "--json").error["code"] == "connect_failed"
    assert made.names == ["web"]


def test_a_name_that_does_not_resolve(faulty: Callable[..., Faulty]) -> None:
    made = faulty(AWS_ENDPOINT_URL="https://lambda.nowhere.invalid")
    check_text(made.cli("ps", "web"), text="name does not resolve", hint="endpoint, the region", status=1)
    check_text(made.cli(*CREATE), text="name does not resolve", hint="endpoint, the region", status=1)
    assert made.names == ["web"]


def test_a_region_that_does_not_exist_names_its_host(faulty: Callable[..., Faulty]) -> None:
    made = faulty(AWS_ENDPOINT_URL="", NO_PROXY="*")
    done = made.cli("ps", "web", "--region", "xx-nowhere-9")
    check_text(done, text=r"cannot connect to https://lambda\.xx-nowhere-9\.amazonaws\.com", hint="region", status=1)


@pytest.mark.parametrize("region", ["us east", "http://x", "-", "a" * 64, "us-east-1.evil.example", "1"])
def test_a_region_that_is_none(faulty: Callable[..., Faulty], region: str) -> None:
    made = faulty()
    for done in (made.cli("ps", "web", f"--region={region}"), made.cli(*CREATE, AGENT_SANDBOX_REGION=region)):
        check_text(done, text="names no AWS region", hint="us-east-1", status=2)
    assert made.cli("ps", "web", f"--region={region}", "--json").error["code"] == "bad_setting"
    assert made.peer.connections == 0


@pytest.mark.parametrize(
    "url", ["lambda.example", "127.0.0.1:8080", "ftp://x", "https://", "http://user:pass@x", "x y"]
)
@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_LAMBDA_MICROVMS"])
def test_an_endpoint_that_is_no_url(faulty: Callable[..., Faulty], name: str, url: str) -> None:
    made = faulty()
    done = made.cli("ps", "web", **{"AWS_ENDPOINT_URL": "", name: url})
    check_text(done, text=f"the endpoint in {name} is no http or https URL", hint="https://HOST", status=2)
    assert "pass" not in done.remarks


def test_an_endpoint_that_is_silent_ends_with_its_launch(faulty: Callable[..., Faulty]) -> None:
    made = faulty()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        made.cli.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{silent.getsockname()[1]}"  # type: ignore[index]
        with made.cli.start("create", "new", "--image", IMAGE_ARN, "--wait-timeout", "1") as process:
            connection, _ = silent.accept()
            with connection:
                assert b"clientToken" in read_until(connection, b"}")
                silent.close()  # what cleans up then finds nobody
                out, err = process.communicate(timeout=60)
    done = Done(process.returncode, out, err)
    check_text(done, text="did not answer within 1 s|not within 1 s", hint="end it with: vmnest rm new", status=1)
    assert made.names == ["new", "web"]


def read_until(connection: socket.socket, end: bytes) -> bytes:
    data = b""
    while end not in data:
        data += connection.recv(65536)
    return data


# -- TLS and proxies ---------------------------------------------------------------------------------------------------


def test_a_certificate_of_an_authority_that_nobody_knows(
    faulty: Callable[..., Faulty], serve: Serve, authority: Authority
) -> None:
    peer = serve(*[json_answer(200, vm())] * 3, tls=authority.context("127.0.0.1"))
    made = faulty(AWS_ENDPOINT_URL=peer.url)
    done = made.cli("ps", "web")
    check_text(done, text="no trusted TLS connection.*certificate", hint="CA certificate in AWS_CA_BUNDLE", status=1)
    assert made.cli("ps", "web", "--json").error["code"] == "tls_failed"
    check_text(made.cli(*CREATE), text="no trusted TLS", hint="AWS_CA_BUNDLE", status=1)
    assert made.names == ["web"]
    assert peer.requests == []
    assert made.cli("ps", "web", AWS_CA_BUNDLE=str(authority.bundle)).status == 0
    aws = made.home / ".aws"
    aws.mkdir()
    (aws / "config").write_text(f"[profile p]\nca_bundle = {authority.bundle}\n")
    assert made.cli("ps", "web", AWS_PROFILE="p").status == 0


@pytest.mark.parametrize(
    ("hosts", "is_expired", "text", "hint"),
    [
        (("127.0.0.1",), True, "expired", "clock"),
        (("other.example",), False, "mismatch|doesn't match", "another host"),
    ],
    ids=["expired", "another host"],
)
def test_a_certificate_that_is_wrong(
    faulty: Callable[..., Faulty],
    serve: Serve,
    authority: Authority,
    hosts: tuple[str, ...],
    is_expired: bool,
    text: str,
    hint: str,
) -> None:
    peer = serve(tls=authority.context(*hosts, is_expired=is_expired))
    made = faulty(AWS_ENDPOINT_URL=peer.url, AWS_CA_BUNDLE=str(authority.bundle))
    check_text(made.cli("ps", "web"), text=text, hint=hint, status=1)


def test_a_peer_that_speaks_no_tls(faulty: Callable[..., Faulty], serve: Serve) -> None:
    peer = serve()
    made = faulty(AWS_ENDPOINT_URL=peer.url.replace("http:", "https:"))
    check_text(made.cli("ps", "web"), text="no trusted TLS", hint="scheme and the port", status=1)


@pytest.mark.parametrize("where", ["AWS_CA_BUNDLE", "profile"])
def test_a_bundle_that_does_not_exist(faulty: Callable[..., Faulty], where: str) -> None:
    made = faulty(AWS_ENDPOINT_URL="https://127.0.0.1:1")
    aws = made.home / ".aws"
    aws.mkdir()
    (aws / "config").write_text("[profile p]\nca_bundle = /nowhere.pem\n")
    environ = {"AWS_PROFILE": "p"} if where == "profile" else {where: "/nowhere.pem"}
    check_text(made.cli("ps", "web", **environ), text="/nowhere.pem: No such file", hint="PEM file", status=2)


@pytest.mark.parametrize("status", [403, 407, 502])
def test_a_proxy_that_refuses(faulty: Callable[..., Faulty], status: int) -> None:
    proxy = faulty(Answer(status)).peer
    made = faulty(AWS_ENDPOINT_URL="https://lambda.example", HTTPS_PROXY=f"http://me:hunter2@127.0.0.1:{proxy.port}")
    done = made.cli("ps", "web")
    check_text(done, text=f"no way to https://lambda.example through the proxy.*{status}", hint="NO_PROXY", status=1)
    assert "hunter2" not in done.remarks
    assert made.cli("ps", "web", "--json").error["code"] == "proxy_failed"
    assert {request.method for request in proxy.requests} == {"CONNECT"}


def test_a_proxy_that_is_not_there(faulty: Callable[..., Faulty], refused_port: int) -> None:
    made = faulty(AWS_ENDPOINT_URL="https://lambda.example", HTTPS_PROXY=f"http://127.0.0.1:{refused_port}")
    check_text(made.cli("ps", "web"), text="through the proxy.*refused", hint="NO_PROXY", status=1)
    check_text(made.cli(*CREATE), text="through the proxy.*refused", hint="NO_PROXY", status=1)
    assert made.names == ["web"]


def test_a_proxy_that_is_no_url(faulty: Callable[..., Faulty]) -> None:
    made = faulty(AWS_ENDPOINT_URL="https://lambda.example", HTTPS_PROXY="socks5://me:hunter2@x")
    done = made.cli("ps", "web")
    check_text(done, text="HTTPS_PROXY is not the URL of an HTTP proxy", hint="http://HOST:PORT", status=2)
    assert "hunter2" not in done.remarks


# -- dependencies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_old", [True, False], ids=["too old", "missing"])
def test_a_botocore_that_does_not_know_the_service(faulty: Callable[..., Faulty], tmp_path: Path, is_old: bool) -> None:
    import urllib3

    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "urllib3").symlink_to(Path(urllib3.__file__).parent)
    if is_old:
        (packages / "botocore" / "data" / "lambda" / "2015-03-31").mkdir(parents=True)
        (packages / "botocore" / "__init__.py").write_text('__version__ = "1.34.0"\n')
    made = faulty(PYTHONPATH=os.pathsep.join([str(ROOT), str(packages)]))
    # Without its site-packages, Python finds these packages only.
    program = (sys.executable, "-S", "-m", "vmnest")
    text = "botocore has no model of lambda-microvms: it is older than 1.43.35" if is_old else "not installed"
    for line, status in ((("ps", "web"), 1), (("exec", "web", "--", "true"), 125), (CREATE, 1)):
        done = made.cli(*line, program=program)
        check_text(done, text=text, hint=r"pip install 'botocore>=1\.43\.35'", status=status)
    assert made.cli("ps", "web", "--json", program=program).error["code"] == "dependency_missing"
    assert made.names == ["web"]
    for line in (("--help",), ("version",), ("local", "status"), ("ls",)):
        assert made.cli(*line, program=program).status == 0
