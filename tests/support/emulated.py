"""Emulated counterparts of AWS's credential providers, and a control plane that knows whose keys are good.

Each is a scripted peer that gives the same kind of answer for ever. What they answer follows the public documentation
of the service that they stand for: IAM Identity Center's portal and token endpoint, a container's credential endpoint,
the instance metadata service of EC2 in both versions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.control import vm
from tests.support.peers import Answer, Peer, Request, Step, json_answer, serving
from vmnest.aws import credentials, signing

PORTAL_TOKEN = "portal-token"
CONTAINER_TOKEN = "container-token"
INSTANCE_TOKEN = "instance-token"
ROLE = "instance-role"


def moment(seconds: float, *, form: str = "%Y-%m-%dT%H:%M:%SZ") -> str:
    """That many seconds from now."""
    return (datetime.now(timezone.utc) + timedelta(seconds=seconds)).strftime(form)


class _Endless(list[Step]):
    """A script that is never over."""

    def pop(self, index: object = 0) -> Step:
        return self[0]


@dataclass
class Keys:
    """Keys that an emulated service gives out: a new pair each time, all of them remembered."""

    lifetime: float = 3600.0
    given: dict[str, tuple[str, str]] = field(default_factory=dict)

    def make(self, kind: str) -> tuple[str, str, str]:
        number = len(self.given) + 1
        access, secret, token = f"ASIA{kind}{number}", f"secret-{kind}-{number}", f"token-{kind}-{number}"
        self.given[access] = secret, token
        return access, secret, token

    def json(self, kind: str) -> dict[str, str]:
        """As containers and instances say it."""
        access, secret, token = self.make(kind)
        return {
            "Code": "Success",
            "AccessKeyId": access,
            "SecretAccessKey": secret,
            "Token": token,
            "Expiration": moment(self.lifetime),
        }


@dataclass
class World:
    """All emulated services; ``keys`` are those that they gave out. A service is started when it is asked for."""

    stack: ExitStack
    keys: Keys = field(default_factory=Keys)

    def start(self, answer: Callable[[Request], Answer]) -> Peer:
        """A peer that answers every request that way."""
        peer = self.stack.enter_context(serving())
        peer.script = _Endless([answer])
        return peer

    def control_plane(self) -> Peer:
        """Answers GetMicrovm to those who sign with keys that were given out, and refuses others as AWS does."""
        return self.start(self._control)

    def portal(self) -> Peer:
        """IAM Identity Center: GetRoleCredentials, and CreateToken of its OIDC."""
        return self.start(self._portal)

    def container(self) -> Peer:
        return self.start(self._container)

    def instance(self, *, version: int = 2) -> Peer:
        return self.start(lambda request: self._instance(request, version))

    def sts(self) -> Peer:
        """An STS that knows its operations by name, and no signatures (moto's does, in the functional tests)."""
        return self.start(self._sts)

    def _sts(self, request: Request) -> Answer:
        operation = request.body.decode().split("Action=")[1].split("&")[0]
        access, secret, token = self.keys.make("ROLE")
        made = (
            f"<AccessKeyId>{access}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>"
            f"<SessionToken>{token}</SessionToken><Expiration>{moment(self.keys.lifetime)}</Expiration>"
        )
        body = (
            f'<{operation}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{operation}Result>'
            f"<Credentials>{made}</Credentials></{operation}Result></{operation}Response>"
        )
        return Answer(200, body.encode(), [("Content-Type", "text/xml")])

    def _control(self, request: Request) -> Answer:
        try:
            verified = signing.verify(
                method=request.method,
                raw_target=request.target,
                headers=request.headers,
                body_sha256=hashlib.sha256(request.body).hexdigest(),
                secret_for=self._secret_for,
                service="lambda",
                now=datetime.now(timezone.utc),
            )
        except signing.SignatureError as error:
            kind = "UnrecognizedClientException" if error.kind == "unknown_key" else "InvalidSignatureException"
            return json_answer(403, {"message": error.message}, headers={"x-amzn-errortype": kind})
        if request.get("x-amz-security-token") != self.keys.given[verified.access_key][1]:
            text = "The security token included in the request is invalid."
            return json_answer(403, {"message": text}, headers={"x-amzn-errortype": "UnrecognizedClientException"})
        return json_answer(200, vm(stateReason=f"seen {verified.access_key} in {verified.region}"))

    def _secret_for(self, access_key: str) -> credentials.Secret | None:
        found = self.keys.given.get(access_key)
        return None if found is None else credentials.Secret(found[0])

    def _portal(self, request: Request) -> Answer:
        parts = urlsplit(request.target)
        if parts.path == "/token":
            return json_answer(
                200, {"accessToken": PORTAL_TOKEN, "tokenType": "Bearer", "expiresIn": 3600, "refreshToken": "next"}
            )
        if request.get("x-amz-sso_bearer_token") != PORTAL_TOKEN:
            return json_answer(
                401,
                {"message": "Session token not found or invalid"},
                headers={"x-amzn-ErrorType": "UnauthorizedException"},
            )
        assert parse_qs(parts.query) == {"role_name": ["reader"], "account_id": ["111122223333"]}
        access, secret, token = self.keys.make("SSO")
        end = datetime.now(timezone.utc) + timedelta(seconds=self.keys.lifetime)
        made = {
            "accessKeyId": access,
            "secretAccessKey": secret,
            "sessionToken": token,
            "expiration": int(end.timestamp() * 1000),
        }
        return json_answer(200, {"roleCredentials": made})

    def _container(self, request: Request) -> Answer:
        if request.get("authorization") != CONTAINER_TOKEN:
            return json_answer(401, {"code": "Unauthorized", "message": "no"})
        return json_answer(200, self.keys.json("BOX"))

    def _instance(self, request: Request, version: int) -> Answer:
        if request.method == "PUT":
            assert request.get("x-aws-ec2-metadata-token-ttl-seconds")
            return Answer(200, INSTANCE_TOKEN.encode()) if version == 2 else Answer(404)
        if version == 2 and request.get("x-aws-ec2-metadata-token") != INSTANCE_TOKEN:
            return Answer(401)
        if request.target.endswith("/security-credentials/"):
            return Answer(200, ROLE.encode())
        assert request.target.endswith(f"/security-credentials/{ROLE}")
        return Answer(200, json.dumps(self.keys.json("EC2")).encode())


@pytest.fixture
def world() -> Iterator[World]:
    """Emulated services that end with the test."""
    with ExitStack() as stack:
        yield World(stack)
