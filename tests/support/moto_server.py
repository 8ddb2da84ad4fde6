"""moto as a process of its own: an independent judge of signatures, and an STS."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
from botocore.config import Config

from vmnest.aws import credentials
from vmnest.aws.credentials import Credentials

REGION = "us-east-1"
ALLOW_ALL = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})
TRUST_ALL = json.dumps(
    {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}]}
)
SERVE = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""


@contextmanager
def serving_moto() -> Iterator[str]:
    """The URL of a moto that believes everybody, until the block ends."""
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.stdin.close()
            process.wait(20)


def switch_on_authentication(url: str, *, after: int = 0) -> None:
    """From now on, or after so many requests, it refuses what is not signed well, or not allowed."""
    # Bare: of a form, which urllib would declare, moto takes the body away.
    headers = {"Content-Type": "application/octet-stream"}
    request = urllib.request.Request(f"{url}/moto-api/reset-auth", data=str(after).encode(), headers=headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        answer.read()


def prepare(url: str) -> tuple[Credentials, Credentials, Credentials]:
    """Users, a role and a bucket, made with boto3 while authentication is off."""
    session = boto3.Session(aws_access_key_id="setup", aws_secret_access_key="setup", region_name=REGION)

    def client(name: str):
        return session.client(name, endpoint_url=url, config=Config(s3={"addressing_style": "path"}))

    iam, sts = client("iam"), client("sts")
    keys = []
    for name in ("user", "nobody"):
        iam.create_user(UserName=name)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        keys.append(credentials.build(key["AccessKeyId"], key["SecretAccessKey"]))
    iam.put_user_policy(UserName="user", PolicyName="all", PolicyDocument=ALLOW_ALL)
    role = iam.create_role(RoleName="role", AssumeRolePolicyDocument=TRUST_ALL)["Role"]["Arn"]
    iam.put_role_policy(RoleName="role", PolicyName="all", PolicyDocument=ALLOW_ALL)
    assumed = sts.assume_role(RoleArn=role, RoleSessionName="session")["Credentials"]
    client("s3").create_bucket(Bucket="bucket")
    token = credentials.build(assumed["AccessKeyId"], assumed["SecretAccessKey"], token=assumed["SessionToken"])
    return keys[0], keys[1], token
