"""AWS in parts: moto is IAM, STS and EC2; a local cloud is S3, Lambda and Logs. A relay makes one address of both.

The client signs for AWS with keys of its own. What goes to the local cloud the relay signs again with the daemon's
keys, and writes the account's number anew, both ways: our client refuses ARNs of the local account on AWS. What goes to
moto, whose authentication is on, passes as it is; what changes roles there is done in the local cloud as well, whose
builds ask for them. A test may have it refuse calls, or be told of each one.
"""

from __future__ import annotations

import hashlib
import random
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from typing import Any

from tests.support.cloud import LocalCloud, open_cloud
from tests.support.moto_server import ALLOW_ALL, serving_moto, switch_on_authentication
from tests.support.relaying import Answer, Asked, relaying, send
from vmnest import rendezvous
from vmnest.aws import signing
from vmnest.aws.credentials import Credentials, Secret

ACCOUNT = "123456789012"  # moto's
LOCAL_ACCOUNT = "000000000000"
REGION = "us-east-1"
OF_MOTO = frozenset({"iam", "sts", "ec2"})
_ACTION = re.compile(rb"(?:^|&)Action=(\w+)")
_DROPPED = frozenset(
    {"host", "authorization", "connection", "content-length", "x-amz-date", "x-amz-content-sha256", "accept-encoding"}
)
_THROTTLED = b'{"message":"Rate exceeded"}'
_FAULT = b'{"message":"something failed"}'


class AwsDouble:
    """An account at one address.

    Attributes:
        url: The address of all services.
        calls: What each request asked for, in order.
        on_call: ``on_call(number, is_done)``: told of each request that may change something, before it is passed on
            and before its answer is; ``number`` counts them from 1.
        failing: The share of requests that are answered by an error that passes.
    """

    def __init__(self, *, moto: str, cloud: LocalCloud, keys: Mapping[str, str]) -> None:
        self._moto = moto
        self._cloud = cloud
        self._keys = rendezvous.keys(cloud.folder)
        self._of_user = keys
        self._lock = threading.Lock()
        self._chance = random.Random(5)
        self._clients: dict[str, Any] = {}
        self.url = ""
        self.calls: list[str] = []
        self.changes = 0
        self.failing = 0.0
        self.on_call: Callable[[int, bool], None] = lambda number, is_done: None

    @property
    def environ(self) -> dict[str, str]:
        """For a client of this account."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": self._of_user["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": self._of_user["SecretAccessKey"],
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self, service: str) -> Any:
        """A boto3 client of this account."""
        if service not in self._clients:
            self._clients[service] = self._make_client(service)
        return self._clients[service]

    def _make_client(self, service: str) -> Any:
        import boto3
        from botocore.config import Config

        return boto3.session.Session().client(
            service,
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=self._of_user["AccessKeyId"],
            aws_secret_access_key=self._of_user["SecretAccessKey"],
            config=Config(proxies={}, s3={"addressing_style": "path"}),
        )

    def inventory(self) -> dict[str, list[str]]:
        """Everything that is there, but what the network came with."""
        iam, s3, ec2 = self.client("iam"), self.client("s3"), self.client("ec2")
        found = {
            "roles": [role["RoleName"] for role in iam.list_roles()["Roles"]],
            "buckets": [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]],
            "groups": [
                group["GroupName"]
                for group in ec2.describe_security_groups()["SecurityGroups"]
                if group["GroupName"] != "default"
            ],
            "images": [
                image["name"]
                for image in self.client("lambda-microvms").list_microvm_images()["items"]
                if image["name"] != "local"
            ],
            "connectors": [
                connector["Name"]
                for connector in self.client("lambda-core").list_network_connectors().get("NetworkConnectors", ())
            ],
        }
        return {kind: sorted(names) for kind, names in found.items() if names}

    def relay(self, asked: Asked) -> Answer:
        """Pass a request on, and bring its answer."""
        _, service = asked.scope
        number = self._count(service or "unsigned", asked)
        if self._is_to_fail():
            return self._failure()
        if number is not None:
            self.on_call(number, False)
        if service in OF_MOTO:
            answer = send(self._moto, asked)
            if service == "iam":
                self._pass_to_cloud(asked)
        else:
            answer = self._pass_to_cloud(asked)
        if number is not None:
            self.on_call(number, True)
        return answer

    def _pass_to_cloud(self, asked: Asked) -> Answer:
        region, service = asked.scope
        target, body = asked.target, asked.body
        if service != "s3":  # an object's bytes are nobody's to change
            target, body = target.replace(ACCOUNT, LOCAL_ACCOUNT), _renumber(body, ACCOUNT, LOCAL_ACCOUNT)
        kept = [(name, value) for name, value in asked.headers if name.lower() not in _DROPPED]
        kept = [(name, value.replace(ACCOUNT, LOCAL_ACCOUNT)) for name, value in kept]
        if service == "s3":
            kept.append(("x-amz-content-sha256", hashlib.sha256(body).hexdigest()))
        signed = signing.sign(
            method=asked.method,
            url=self._cloud.url + target,
            headers=kept,
            body_sha256=hashlib.sha256(body).hexdigest(),
            credentials=Credentials(access_key=self._keys.access_key, secret_key=Secret(self._keys.secret_key)),
            region=region or REGION,
            service=service or "unsigned",
            when=datetime.now(timezone.utc),
        )
        answer = send(self._cloud.url, Asked(asked.method, target, [*kept, *signed], body))
        if service == "s3":
            return answer
        return Answer(answer.status, answer.headers, _renumber(answer.body, LOCAL_ACCOUNT, ACCOUNT))

    def _count(self, service: str, asked: Asked) -> int | None:
        action = _ACTION.search(asked.body) if service in OF_MOTO else None
        with self._lock:
            self.calls.append(f"{service} {action.group(1).decode() if action else f'{asked.method} {asked.target}'}")
            is_reading = action is not None and action.group(1).startswith((b"Get", b"List", b"Describe"))
            if is_reading or asked.method in ("GET", "HEAD") or service == "logs":
                return None
            self.changes += 1
            return self.changes

    def _is_to_fail(self) -> bool:
        with self._lock:
            return self._chance.random() < self.failing

    def _failure(self) -> Answer:
        with self._lock:
            is_throttled = self._chance.random() < 0.5
        if is_throttled:
            headers = [("x-amzn-errortype", "ThrottlingException"), ("Content-Type", "application/json")]
            return Answer(429, headers, _THROTTLED)
        return Answer(500, [("x-amzn-errortype", "InternalServerException")], _FAULT)


def _renumber(data: bytes, old: str, new: str) -> bytes:
    return data.replace(old.encode(), new.encode())


def _make_user(moto: str) -> Mapping[str, str]:
    """Somebody who may do everything; the keys."""
    import boto3
    from botocore.config import Config

    iam = boto3.session.Session().client(
        "iam",
        endpoint_url=moto,
        region_name=REGION,
        aws_access_key_id="x",
        aws_secret_access_key="x",
        config=Config(proxies={}),
    )
    iam.create_user(UserName="tester")
    iam.put_user_policy(UserName="tester", PolicyName="all", PolicyDocument=ALLOW_ALL)
    keys: Mapping[str, str] = iam.create_access_key(UserName="tester")["AccessKey"]
    return keys


@contextmanager
def open_double() -> Iterator[AwsDouble]:
    """An empty account, until the block ends."""
    with ExitStack() as stack:
        moto = stack.enter_context(serving_moto())
        cloud = stack.enter_context(open_cloud())
        keys = _make_user(moto)
        switch_on_authentication(moto)
        double = AwsDouble(moto=moto, cloud=cloud, keys=keys)
        double.url = stack.enter_context(relaying(double.relay))
        yield double
