"""ministack as an account: another party's reading of IAM, STS, EC2, S3, CloudWatch Logs, lambda-core, lambda-microvms.

It checks each signature, and what the policies of its user allow. What it lacks of lambda-microvms, or has otherwise
than AWS, is added in front of it: see ``Ministack.relay``. It builds and runs nothing.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.support.authority import Authority
from tests.support.paths import MINISTACK_PYTHON
from tests.support.relaying import Answer, Asked, relaying, send

ACCOUNT = "123456789012"
REGION = "us-east-1"
USER = "tester"
BASE_IMAGE = f"arn:aws:lambda:{REGION}:aws:microvm-image:al2023-1"
START_SECONDS = 30
_IMAGES = "/2025-09-09/microvm-images"
_MICROVMS = "/2025-09-09/microvms"
_CONNECTORS = "/2026-04-04/network-connectors"
_TAGS = "/2017-03-31/tags"
_MANAGED = "/2025-09-09/managed-microvm-images"
# Keys that it asks nothing of: for what the double itself wants to know.
_ROOT = [
    ("Host", "127.0.0.1"),
    ("Authorization", f"AWS4-HMAC-SHA256 Credential=test/20260101/{REGION}/lambda/aws4_request"),
]


class Ministack:
    """An account at one address.

    Attributes:
        url: The address of all services.
        user: The environment of somebody who may do everything.
        calls: What each request asked for, in order.
        agent: The URL of an agent that stands for those of all MicroVMs, since none of them runs.
        on_call: Told of each request before it is passed on; may answer it.
    """

    def __init__(self, server: str, *, authority: Authority) -> None:
        self._server = server
        self._bundle = str(authority.bundle)
        self._context = ssl.create_default_context(cafile=self._bundle)
        self._clients: dict[str, Any] = {}
        self.url = ""
        self._forget()

    def reset(self) -> None:
        """Begin anew with an empty account."""
        self._send(Asked("POST", "/_ministack/reset", _ROOT, b""))
        self._forget()
        self.user = self.make_user(USER)

    def _forget(self) -> None:
        self._deleted: set[str] = set()
        self._tags: dict[str, dict[str, str]] = {}
        self.user: Mapping[str, str] = {}
        self.calls: list[str] = []
        self.agent: str | None = None
        self.on_call: Callable[[str], Answer | None] = lambda call: None

    def make_user(self, name: str) -> dict[str, str]:
        """Somebody who may do everything until ``deny``; the environment of a client."""
        iam = self.client("iam")
        iam.create_user(UserName=name)
        self.deny(name)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return {
            "AWS_CA_BUNDLE": self._bundle,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def deny(self, name: str, *actions: str) -> None:
        """From now on that user may do everything but this."""
        statements = [{"Effect": "Allow", "Action": "*", "Resource": "*"}]
        if actions:
            statements.append({"Effect": "Deny", "Action": actions, "Resource": "*"})
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        self.client("iam").put_user_policy(UserName=name, PolicyName="may", PolicyDocument=policy)

    def client(self, service: str) -> Any:
        """A boto3 client of the account's root."""
        if service not in self._clients:
            self._clients[service] = self._make_client(service)
        return self._clients[service]

    def _make_client(self, service: str) -> Any:
        import boto3
        from botocore.config import Config

        return boto3.session.Session().client(
            service,
            endpoint_url=self.url,
            verify=self._bundle,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(proxies={}, s3={"addressing_style": "path"}),
        )

    def inventory(self) -> dict[str, list[str]]:
        """Everything that is there, but what the network came with."""
        iam, s3, ec2 = self.client("iam"), self.client("s3"), self.client("ec2")
        groups = ec2.describe_security_groups()["SecurityGroups"]
        images = self.client("lambda-microvms").list_microvm_images()["items"]
        connectors = self.client("lambda-core").list_network_connectors()["NetworkConnectors"]
        found = {
            "roles": [role["RoleName"] for role in iam.list_roles()["Roles"]],
            "buckets": [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]],
            "groups": [group["GroupName"] for group in groups if group["GroupName"] != "default"],
            "images": [image["name"] for image in images],
            "connectors": [connector["Name"] for connector in connectors],
        }
        return {kind: sorted(names) for kind, names in found.items() if names}

    # -- what it lacks ---------------------------------------------------------------------------------------------

    def relay(self, asked: Asked) -> Answer:
        """Pass a request on, and mend the answer where it is not what AWS answers.

        ministack 1.5.33 knows neither the images of the service nor builds, keeps the newest version of an image only,
        cannot delete one, puts a slash into ARNs where AWS has a colon, and does not tell the tags of connectors.
        """
        path = urllib.parse.unquote(urllib.parse.urlsplit(asked.target).path)
        self.calls.append(f"{asked.method} {path}")
        answer = self.on_call(self.calls[-1])
        if answer is not None:
            return answer
        if path.startswith(_MICROVMS):
            return self._with_agent(self._send(asked))
        if path == _MANAGED:
            return _answer({"items": [{"imageArn": BASE_IMAGE, "createdAt": 0, "updatedAt": 0}]})
        if path.startswith(_MANAGED):
            return _answer({"items": [{"imageArn": BASE_IMAGE, "imageVersion": "1", "status": "AVAILABLE", **_TIMES}]})
        if path == _CONNECTORS and asked.method == "POST":
            return self._new_connector(asked)
        if path.startswith(f"{_TAGS}/") and path[len(_TAGS) + 1 :] in self._tags:
            return self._tags_of(asked, path[len(_TAGS) + 1 :])
        if not path.startswith(_IMAGES):
            return self._send(asked)
        if path == _IMAGES:
            return self._all_images(asked)
        arn, _, rest = path[len(_IMAGES) + 1 :].partition("/")
        return self._one_image(asked, arn, rest)

    def _all_images(self, asked: Asked) -> Answer:
        answer = _mended(self._send(asked))
        content = json.loads(answer.body)
        if asked.method == "POST" and answer.status == 201:
            self._deleted.discard(content["name"])
        if asked.method == "GET" and answer.status == 200:
            content["items"] = [each for each in content["items"] if each["name"] not in self._deleted]
            return _answer(content)
        return answer

    def _one_image(self, asked: Asked, arn: str, rest: str) -> Answer:
        name = arn.rpartition(":")[2]
        if name in self._deleted:
            return refuse(404, "ResourceNotFoundException", f"MicroVMImage not found for MicroVMImageID: {arn}")
        if asked.method == "DELETE" and not rest:
            self._deleted.add(name)
            return _answer({"imageIdentifier": arn, "state": "DELETING"})
        if rest == "versions":
            newest = json.loads(self._ask(f"{_IMAGES}/{name}").body)["latestActiveImageVersion"]
            return _answer({"items": [json.loads(self._ask(f"{_IMAGES}/{name}/versions/{newest}").body)]})
        if rest.endswith("/builds"):
            return _answer({"items": []})
        return _mended(self._send(asked))

    def _with_agent(self, answer: Answer) -> Answer:
        content = json.loads(answer.body or b"{}")
        if self.agent is None or "endpoint" not in content:
            return answer
        return _answer({**content, "endpoint": self.agent})

    def _new_connector(self, asked: Asked) -> Answer:
        answer = self._send(asked)
        if answer.status == 202:
            self._tags[json.loads(answer.body)["Arn"]] = json.loads(asked.body).get("Tags", {})
        return answer

    def _tags_of(self, asked: Asked, arn: str) -> Answer:
        if asked.method == "GET":
            return _answer({"Tags": self._tags[arn]})
        if asked.method == "POST":
            self._tags[arn].update(json.loads(asked.body)["Tags"])
        return Answer(204)

    def _send(self, asked: Asked) -> Answer:
        return send(self._server, asked, context=self._context)

    def _ask(self, target: str) -> Answer:
        return _mended(self._send(Asked("GET", target, _ROOT, b"")))


_TIMES = {"createdAt": 0, "updatedAt": 0}


def refuse(status: int, error_type: str, message: str) -> Answer:
    """An error of Lambda's."""
    headers = [("Content-Type", "application/json"), ("x-amzn-errortype", error_type)]
    return Answer(status, headers, json.dumps({"message": message}).encode())


def _answer(content: Mapping[str, object]) -> Answer:
    return Answer(200, [("Content-Type", "application/json")], json.dumps(content).encode())


def _mended(answer: Answer) -> Answer:
    return Answer(answer.status, answer.headers, re.sub(rb"(:\d{12}:microvm-image)/", rb"\1:", answer.body))


@contextmanager
def _serving(folder: Path, authority: Authority) -> Iterator[str]:
    """The URL of a ministack with an empty account, until the block ends."""
    environ = {
        "AUTH": "true",
        "HOME": str(folder),
        "MINISTACK_ACCOUNT_ID": ACCOUNT,
        "PATH": "/nonexistent",  # no Docker, no anything
        "TMPDIR": str(folder),
    }
    certificate = str(authority.issue("127.0.0.1"))
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = listener.getsockname()[1]
        log = stack.enter_context((folder / "log").open("wb"))
        process = subprocess.Popen(
            [
                *(str(MINISTACK_PYTHON), "-m", "hypercorn", "ministack.app:app", "--bind", f"fd://{listener.fileno()}"),
                *("--certfile", certificate, "--keyfile", certificate),
            ],
            env={**environ, "GATEWAY_PORT": str(port)},
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        stack.enter_context(process)
        stack.callback(process.terminate)
        url = f"https://127.0.0.1:{port}"
        context = ssl.create_default_context(cafile=authority.bundle)
        # It listens already: the answer comes when it has started.
        with urllib.request.urlopen(f"{url}/_ministack/health", timeout=START_SECONDS, context=context) as answer:
            answer.read()
        yield url


@contextmanager
def open_ministack(folder: Path, *, authority: Authority) -> Iterator[Ministack]:
    """An empty account, until the block ends; ``folder`` is for its own files.

    By TLS, since the policies of our buckets deny what comes without.
    """
    with _serving(folder, authority) as server:
        double = Ministack(server, authority=authority)
        with relaying(double.relay, context=authority.context("127.0.0.1")) as double.url:
            double.reset()
            yield double
