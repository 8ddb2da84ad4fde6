"""An AWS account that answers whatever a test wants: by operation, whichever service it belongs to. It keeps nothing.

What is not said otherwise is answered as AWS does for an account in order: keys that are good, an image that can be
started from, a role that the service may assume. Signatures are not checked, but for their time.
"""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from tests.support.peers import Answer, HangUp, Peer, Request, Silence, json_answer, serving

ACCOUNT = "123456789012"
REGION = "us-east-1"
IMAGE = f"arn:aws:lambda:{REGION}:{ACCOUNT}:microvm-image:demo"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/sandbox"
USER = f"arn:aws:iam::{ACCOUNT}:user/me"
CONNECTOR = f"arn:aws:lambda:{REGION}:{ACCOUNT}:network-connector:nc-1"
UNSIGNED = "unsigned"
SKEW_LIMIT_SECONDS = 300
_CREATED = 1_780_000_000.5
_ROUTES = (
    (r"/2025-09-09/microvms", "ListMicrovms"),
    (r"/2025-09-09/microvm-images", "ListMicrovmImages"),
    (r"/2025-09-09/microvm-images/[^/]+", "GetMicrovmImage"),
    (r"/2025-09-09/microvm-images/[^/]+/versions", "ListMicrovmImageVersions"),
    (r"/2025-09-09/microvm-images/[^/]+/versions/[^/]+", "GetMicrovmImageVersion"),
    (r"/2026-04-04/network-connectors/[^/]+", "GetNetworkConnector"),
)
_READING = re.compile(r"unsigned|(?:Get|List|Describe|Simulate)[A-Z]\w+")

Said = Answer | Silence | HangUp
Handler = Callable[[Request], Said]


def refusal(status: int, kind: str, message: str | None = "no") -> Answer:
    """An error as the JSON services say it."""
    headers = {"x-amzn-errortype": kind, "x-amzn-requestid": "r-1"}
    return json_answer(status, {"message": message, "__type": kind}, headers=headers)


def xml_refusal(status: int, kind: str, message: str = "no") -> Answer:
    """An error as IAM and STS say it."""
    body = f"<ErrorResponse><Error><Code>{kind}</Code><Message>{message}</Message></Error></ErrorResponse>"
    return Answer(status, body.encode(), [("Content-Type", "text/xml")])


def denied(action: str = "lambda:X") -> Answer:
    """What IAM makes a JSON service answer."""
    return refusal(403, "AccessDeniedException", f"User: {USER} is not authorized to perform: {action}")


def microvm(number: int, *, state: str = "RUNNING", version: str = "1.0") -> dict[str, Any]:
    """An item of ListMicrovms."""
    return {
        "microvmId": f"microvm-{number}",
        "state": state,
        "imageArn": IMAGE,
        "imageVersion": version,
        "startedAt": _CREATED,
    }


def version(
    number: str, *, state: str = "SUCCESSFUL", status: str = "ACTIVE", memory: int | None = 512
) -> dict[str, Any]:
    """An answer of GetMicrovmImageVersion, or an item of the list."""
    return {
        "imageArn": IMAGE,
        "imageVersion": number,
        "state": state,
        "status": status,
        "createdAt": _CREATED,
        "updatedAt": _CREATED,
        "baseImageArn": f"arn:aws:lambda:{REGION}:aws:microvm-image:al2023-1",
        "buildRoleArn": ROLE,
        "codeArtifact": {"uri": "s3://bucket/key"},
        "resources": None if memory is None else [{"minimumMemoryInMiB": memory}],
    }


def image_item(*, state: str = "CREATED", active: str | None = "1.0") -> dict[str, Any]:
    """An item of ListMicrovmImages."""
    return {
        "imageArn": IMAGE,
        "name": "demo",
        "state": state,
        "createdAt": _CREATED,
        "latestActiveImageVersion": active,
        "latestFailedImageVersion": None,
    }


def image(*, state: str = "CREATED", active: str | None = "1.0") -> dict[str, Any]:
    """An answer of GetMicrovmImage."""
    return {**image_item(state=state, active=active), "updatedAt": _CREATED, "tags": {}}


def trust(**members: object) -> str:
    """A trust policy of one statement, by default that which the service needs."""
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "lambda.amazonaws.com"},
        "Action": "sts:AssumeRole",
        **members,
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def role(*, arn: str = ROLE, trusting: str | None = None) -> Answer:
    """An answer of GetRole."""
    document = urllib.parse.quote(trust() if trusting is None else trusting)
    return xml_answer(
        "GetRole",
        f"<Role><Path>/</Path><RoleName>sandbox</RoleName><RoleId>AROA1</RoleId><Arn>{arn}</Arn>"
        "<CreateDate>2026-01-01T00:00:00Z</CreateDate>"
        f"<AssumeRolePolicyDocument>{document}</AssumeRolePolicyDocument></Role>",
    )


def caller(arn: str = USER, *, account: str = ACCOUNT) -> Answer:
    """An answer of GetCallerIdentity."""
    members = f"<Arn>{arn}</Arn><UserId>AIDA1</UserId><Account>{account}</Account>"
    return xml_answer("GetCallerIdentity", members)


def xml_answer(operation: str, members: str) -> Answer:
    """A success of IAM or STS."""
    body = f"<{operation}Response><{operation}Result>{members}</{operation}Result></{operation}Response>"
    return Answer(200, body.encode(), [("Content-Type", "text/xml")])


def simulated(*results: tuple[str, str, str, tuple[str, ...]]) -> Answer:
    """An answer of SimulatePrincipalPolicy: action, resource, decision, context that is missing."""
    members = "".join(
        f"<member><EvalActionName>{action}</EvalActionName><EvalResourceName>{resource}</EvalResourceName>"
        f"<EvalDecision>{decision}</EvalDecision>"
        f"<MissingContextValues>{''.join(f'<member>{key}</member>' for key in missing)}</MissingContextValues></member>"
        for action, resource, decision, missing in results
    )
    return xml_answer("SimulatePrincipalPolicy", f"<EvaluationResults>{members}</EvaluationResults>")


def simulating(*forbidden: str, missing: tuple[str, ...] = (), decision: str = "implicitDeny") -> Handler:
    """A simulator that allows all but these actions."""

    def answer(request: Request) -> Answer:
        form = urllib.parse.parse_qs(request.body.decode())
        actions = [value for key, (value,) in form.items() if key.startswith("ActionNames.")]
        resources = [value for key, (value,) in form.items() if key.startswith("ResourceArns.")]
        return simulated(
            *(
                (
                    action,
                    resource,
                    decision if action in forbidden else "allowed",
                    missing if action in forbidden else (),
                )
                for action in actions
                for resource in resources
            )
        )

    return answer


@dataclass
class ScriptedAws:
    """The account. ``answers`` maps operations to what is answered, instead of what an account in order would.

    ``clock_offset``: by how many seconds its clock is ahead of this machine's.
    """

    home: Path
    peer: Peer
    answers: dict[str, Said | Handler] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    clock_offset: float = 0.0

    @property
    def environ(self) -> dict[str, str]:
        """For a client of this account, with an image and a role."""
        return {
            "HOME": str(self.home),
            "AWS_ENDPOINT_URL": self.peer.url,
            "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "secret-of-the-test",
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AGENT_SANDBOX_IMAGE_ARN": IMAGE,
            "AGENT_SANDBOX_EXECUTION_ROLE_ARN": ROLE,
            "AGENT_SANDBOX_INFRA_STATE": str(self.home / "infra.json"),
            "AGENT_SANDBOX_LOCAL_DIR": str(self.home / "local"),
        }

    def handle(self, request: Request) -> Said:
        """Answer one request."""
        operation = _operation(request)
        self.asked.append(operation)
        assert _READING.fullmatch(operation), f"a check asked for {operation}, which may change something"
        said = self.answers.get(operation)
        if said is None:
            said = self._skew(request) or getattr(self, f"_{operation}")(request)
        elif not isinstance(said, (Answer, Silence, HangUp)):
            said = said(request)
        return self._dated(said) if isinstance(said, Answer) else said

    def _dated(self, said: Answer) -> Answer:
        if any(name.lower() == "date" for name, _ in said.headers):
            return said
        moment = datetime.now(timezone.utc).timestamp() + self.clock_offset
        return Answer(said.status, said.body, [*said.headers, ("Date", formatdate(moment, usegmt=True))])

    def _skew(self, request: Request) -> Answer | None:
        signed = request.get("x-amz-date")
        if signed is None:
            return None
        when = datetime.strptime(signed, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc).timestamp()
        if abs(when - self.clock_offset - datetime.now(timezone.utc).timestamp()) < SKEW_LIMIT_SECONDS:
            return None
        if request.body.startswith(b"Action="):
            return xml_refusal(403, "SignatureDoesNotMatch", "Signature expired: it is too old")
        return refusal(403, "InvalidSignatureException", "Signature expired: it is too old")

    def _unsigned(self, request: Request) -> Answer:
        return refusal(403, "MissingAuthenticationTokenException", "Missing Authentication Token")

    def _ListMicrovms(self, request: Request) -> Answer:
        return json_answer(200, {"items": [], "nextToken": None})

    _ListMicrovmImages = _ListMicrovms

    def _GetMicrovmImage(self, request: Request) -> Answer:
        return json_answer(200, image())

    def _GetMicrovmImageVersion(self, request: Request) -> Answer:
        return json_answer(200, version(request.target.rpartition("/")[2]))

    def _ListMicrovmImageVersions(self, request: Request) -> Answer:
        return json_answer(200, {"items": [version("1.0")], "nextToken": None})

    def _GetNetworkConnector(self, request: Request) -> Answer:
        return json_answer(200, {"Arn": CONNECTOR, "Id": "nc-1", "Name": "vpc", "State": "ACTIVE"})

    def _GetCallerIdentity(self, request: Request) -> Answer:
        return caller()

    def _GetRole(self, request: Request) -> Answer:
        return role()

    def _SimulatePrincipalPolicy(self, request: Request) -> Answer:
        answer = simulating()(request)
        assert isinstance(answer, Answer)
        return answer

    def _DescribeLogGroups(self, request: Request) -> Answer:
        return json_answer(200, {"logGroups": []})

    def _ListServiceQuotas(self, request: Request) -> Answer:
        return json_answer(200, {"Quotas": []})


def _operation(request: Request) -> str:
    if request.get("authorization") is None:
        return UNSIGNED
    target = request.get("x-amz-target")
    if target is not None:
        return target.rpartition(".")[2]
    form = urllib.parse.parse_qs(request.body.decode("latin-1"))
    if "Action" in form:
        return form["Action"][0]
    path = urllib.parse.urlsplit(request.target).path  # it may come through a proxy, with a host
    found = next((name for pattern, name in _ROUTES if re.fullmatch(pattern, path)), None)
    return found if found is not None and request.method == "GET" else f"{request.method} {path}"


class _Endless(list[Any]):
    """A script that is never over."""

    def pop(self, index: object = 0) -> Any:
        return self[0]


@pytest.fixture
def scripted_aws(tmp_path: Path) -> Iterator[ScriptedAws]:
    with serving() as peer:
        account = ScriptedAws(tmp_path, peer)
        peer.script = _Endless([account.handle])
        yield account
