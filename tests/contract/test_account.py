"""The account's contract, as boto3 and the AWS CLI see it: S3, IAM, STS, logs, connectors.

One body runs against the local cloud and against moto, which somebody else made: where both agree, it is most likely
what AWS does. Classes below ``TestBeside`` are about what the local cloud has and moto has not.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import time
from collections.abc import Iterator
from datetime import timezone
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.support.cloud import LocalCloud
from tests.support.moto_server import serving_moto
from tests.support.paths import AWS_CLI

BUCKET = "contract-bucket"
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}
RIGHTS = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "ec2:*", "Resource": "*"}]}
MIB = 1 << 20


class Account:
    """Somebody who has an account, and how to reach him."""

    def __init__(self, name: str, *, url: str, access_key: str, secret_key: str) -> None:
        self.name = name
        self._options = {"endpoint_url": url, "aws_access_key_id": access_key, "aws_secret_access_key": secret_key}

    def client(self, service: str, region: str = "us-east-1", **config: Any) -> Any:
        import boto3

        return boto3.session.Session().client(
            service,
            region_name=region,
            config=Config(retries={"total_max_attempts": 1}, proxies={}, **config),
            **self._options,
        )


@pytest.fixture(scope="module", params=["local", "moto"])
def account(request: pytest.FixtureRequest) -> Iterator[Account]:
    """The local cloud's account, or moto's."""
    if request.param == "local":
        cloud: LocalCloud = request.getfixturevalue("shared_cloud")
        yield Account("local", url=cloud.url, access_key=cloud.keys.access_key, secret_key=cloud.keys.secret_key)
        return
    with serving_moto() as url:
        yield Account("moto", url=url, access_key="a", secret_key="b")


@pytest.fixture(scope="module")
def objects(account: Account) -> Iterator[None]:
    """A bucket called ``objects``."""
    client = account.client("s3")
    client.create_bucket(Bucket="objects")
    yield
    for page in client.get_paginator("list_object_versions").paginate(Bucket="objects"):
        for each in [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]:
            client.delete_object(Bucket="objects", Key=each["Key"], VersionId=each["VersionId"])
    client.delete_bucket(Bucket="objects")


def code(act: Any, **params: Any) -> str:
    with pytest.raises(ClientError) as caught:
        act(**params)
    found: str = caught.value.response["Error"]["Code"]
    return found


class TestBuckets:
    @pytest.fixture
    def s3(self, account):
        return account.client("s3")

    def test_they_are_made_found_and_removed(self, s3):
        s3.create_bucket(Bucket=BUCKET)
        assert BUCKET in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
        assert s3.get_bucket_location(Bucket=BUCKET)["LocationConstraint"] is None
        assert s3.head_bucket(Bucket=BUCKET)["BucketRegion"] == "us-east-1"
        s3.put_object(Bucket=BUCKET, Key="k", Body=b"x")
        assert code(s3.delete_bucket, Bucket=BUCKET) == "BucketNotEmpty"
        s3.delete_object(Bucket=BUCKET, Key="k")
        s3.delete_bucket(Bucket=BUCKET)
        assert code(s3.head_bucket, Bucket=BUCKET) == "404"
        assert code(s3.list_objects_v2, Bucket=BUCKET) == "NoSuchBucket"

    def test_regions_are_named_by_constraints(self, account, s3):
        west = account.client("s3", region="eu-west-1")
        assert code(west.create_bucket, Bucket=BUCKET) == "IllegalLocationConstraintException"
        west.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        again = {"Bucket": BUCKET, "CreateBucketConfiguration": {"LocationConstraint": "eu-west-1"}}
        assert code(west.create_bucket, **again) == "BucketAlreadyOwnedByYou"
        assert west.get_bucket_location(Bucket=BUCKET)["LocationConstraint"] == "eu-west-1"
        west.delete_bucket(Bucket=BUCKET)
        assert code(s3.create_bucket, Bucket="no") == "InvalidBucketName"

    def test_settings_come_back_as_they_were_set(self, s3):
        s3.create_bucket(Bucket=BUCKET)
        assert code(s3.get_bucket_policy, Bucket=BUCKET) == "NoSuchBucketPolicy"
        assert code(s3.get_bucket_tagging, Bucket=BUCKET) == "NoSuchTagSet"
        block = dict.fromkeys(
            ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"), True
        )
        s3.put_public_access_block(Bucket=BUCKET, PublicAccessBlockConfiguration=block)
        assert s3.get_public_access_block(Bucket=BUCKET)["PublicAccessBlockConfiguration"] == block
        rules = [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}, "BucketKeyEnabled": True}]
        s3.put_bucket_encryption(Bucket=BUCKET, ServerSideEncryptionConfiguration={"Rules": rules})
        assert s3.get_bucket_encryption(Bucket=BUCKET)["ServerSideEncryptionConfiguration"]["Rules"] == rules
        s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
        assert s3.get_bucket_versioning(Bucket=BUCKET)["Status"] == "Enabled"
        tags = [{"Key": "a", "Value": "b & <c>"}]
        s3.put_bucket_tagging(Bucket=BUCKET, Tagging={"TagSet": tags})
        assert s3.get_bucket_tagging(Bucket=BUCKET)["TagSet"] == tags
        statement = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": f"arn:aws:s3:::{BUCKET}/*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        s3.put_bucket_policy(Bucket=BUCKET, Policy=policy)
        assert s3.get_bucket_policy(Bucket=BUCKET)["Policy"] == policy
        ownership = {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
        s3.put_bucket_ownership_controls(Bucket=BUCKET, OwnershipControls=ownership)
        assert s3.get_bucket_ownership_controls(Bucket=BUCKET)["OwnershipControls"] == ownership
        for name in ("policy", "tagging", "ownership_controls"):
            getattr(s3, f"delete_bucket_{name}")(Bucket=BUCKET)
        s3.delete_public_access_block(Bucket=BUCKET)
        assert code(s3.get_bucket_policy, Bucket=BUCKET) == "NoSuchBucketPolicy"
        assert code(s3.get_public_access_block, Bucket=BUCKET) == "NoSuchPublicAccessBlockConfiguration"
        s3.delete_bucket(Bucket=BUCKET)


class TestObjects:
    @pytest.fixture
    def s3(self, account, objects):
        return account.client("s3")

    @pytest.mark.parametrize("key", ["a", "a//b", "é/\U0001f600", "a b+c&d=e?f#g", "%2F%25", "tr/", "~!*'()"])
    def test_keys_are_what_they_are(self, s3, key):
        s3.put_object(Bucket="objects", Key=key, Body=key.encode(), Metadata={"m": "1"}, ContentType="text/x")
        found = s3.get_object(Bucket="objects", Key=key)
        assert found["Body"].read() == key.encode()
        assert (found["Metadata"], found["ContentType"]) == ({"m": "1"}, "text/x")
        assert found["ETag"] == f'"{hashlib.md5(key.encode()).hexdigest()}"'
        listed = s3.list_objects_v2(Bucket="objects", Prefix=key)["Contents"]
        assert [each["Key"] for each in listed] == [key]
        s3.delete_object(Bucket="objects", Key=key)
        assert code(s3.get_object, Bucket="objects", Key=key) == "NoSuchKey"
        assert code(s3.head_object, Bucket="objects", Key=key) == "404"

    @pytest.mark.parametrize("algorithm", ["CRC32", "SHA1", "SHA256"])
    def test_checksums_are_kept(self, s3, algorithm):
        put = s3.put_object(Bucket="objects", Key="sum", Body=b"abc", ChecksumAlgorithm=algorithm)
        head = s3.head_object(Bucket="objects", Key="sum", ChecksumMode="ENABLED")
        assert head[f"Checksum{algorithm}"] == put[f"Checksum{algorithm}"]
        assert s3.get_object(Bucket="objects", Key="sum")["Body"].read() == b"abc"  # boto3 checks it

    def test_ranges_and_conditions(self, s3):
        etag = s3.put_object(Bucket="objects", Key="range", Body=b"0123456789")["ETag"]
        part = s3.get_object(Bucket="objects", Key="range", Range="bytes=2-4", IfMatch=etag)
        assert (part["Body"].read(), part["ContentRange"]) == (b"234", "bytes 2-4/10")
        assert code(s3.get_object, Bucket="objects", Key="range", Range="bytes=10-") == "InvalidRange"
        assert code(s3.get_object, Bucket="objects", Key="range", IfMatch='"x"') == "PreconditionFailed"
        assert code(s3.get_object, Bucket="objects", Key="range", IfNoneMatch=etag) == "304"
        assert code(s3.put_object, Bucket="objects", Key="range", Body=b"", IfNoneMatch="*") == "PreconditionFailed"

    def test_large_files_go_up_and_come_down(self, s3, tmp_path):
        data = os.urandom(18 * MIB)
        (tmp_path / "up").write_bytes(data)
        s3.upload_file(str(tmp_path / "up"), "objects", "large")
        assert s3.head_object(Bucket="objects", Key="large")["ETag"].endswith('-3"')
        s3.download_file("objects", "large", str(tmp_path / "down"))
        assert (tmp_path / "down").read_bytes() == data
        stream = io.BytesIO()
        s3.download_fileobj("objects", "large", stream)
        assert stream.getvalue() == data

    def test_uploads_can_be_listed_and_given_up(self, s3):
        upload = s3.create_multipart_upload(Bucket="objects", Key="parts")["UploadId"]
        named = {"Bucket": "objects", "Key": "parts", "UploadId": upload}
        part = s3.upload_part(**named, PartNumber=1, Body=b"small")
        assert [each["Size"] for each in s3.list_parts(**named)["Parts"]] == [5]
        assert [each["UploadId"] for each in s3.list_multipart_uploads(Bucket="objects")["Uploads"]] == [upload]
        wrong = {"Parts": [{"PartNumber": 1, "ETag": '"x"'}]}
        assert code(s3.complete_multipart_upload, **named, MultipartUpload=wrong) == "InvalidPart"
        s3.abort_multipart_upload(**named)
        assert code(s3.list_parts, **named) == "NoSuchUpload"
        assert part["ETag"] == f'"{hashlib.md5(b"small").hexdigest()}"'

    def test_lists_have_pages_and_common_prefixes(self, s3):
        for key in ("list/a/1", "list/a/2", "list/b", "list/c"):
            s3.put_object(Bucket="objects", Key=key, Body=b"")
        pages = s3.get_paginator("list_objects_v2").paginate(
            Bucket="objects", Prefix="list/", Delimiter="/", PaginationConfig={"PageSize": 1}
        )
        keys, prefixes = [], []
        for page in pages:
            keys += [each["Key"] for each in page.get("Contents", ())]
            prefixes += [each["Prefix"] for each in page.get("CommonPrefixes", ())]
        assert (keys, prefixes) == (["list/b", "list/c"], ["list/a/"])
        old = s3.get_paginator("list_objects").paginate(
            Bucket="objects", Prefix="list/", PaginationConfig={"PageSize": 3}
        )
        assert [each["Key"] for page in old for each in page["Contents"]][-1] == "list/c"

    def test_versions_are_kept_and_deleted(self, s3):
        s3.put_bucket_versioning(Bucket="objects", VersioningConfiguration={"Status": "Enabled"})
        ids = [s3.put_object(Bucket="objects", Key="v", Body=body)["VersionId"] for body in (b"1", b"2")]
        marker = s3.delete_object(Bucket="objects", Key="v")
        assert marker["DeleteMarker"] is True
        assert code(s3.get_object, Bucket="objects", Key="v") == "NoSuchKey"
        assert s3.get_object(Bucket="objects", Key="v", VersionId=ids[0])["Body"].read() == b"1"
        listed = s3.list_object_versions(Bucket="objects", Prefix="v")
        assert [each["VersionId"] for each in listed["Versions"]] == ids[::-1]
        assert [each["VersionId"] for each in listed["DeleteMarkers"]] == [marker["VersionId"]]
        gone = [{"Key": "v", "VersionId": each} for each in (*ids, marker["VersionId"])]
        deleted = s3.delete_objects(Bucket="objects", Delete={"Objects": gone})["Deleted"]
        assert len(deleted) == 3
        left = s3.list_object_versions(Bucket="objects", Prefix="v")
        assert not left.get("Versions")
        assert not left.get("DeleteMarkers")


class TestIam:
    @pytest.fixture
    def iam(self, account):
        return account.client("iam")

    @pytest.fixture
    def role(self, iam):
        role = iam.create_role(
            RoleName="contract", AssumeRolePolicyDocument=json.dumps(TRUST), Tags=[{"Key": "a", "Value": "é & <b>"}]
        )["Role"]
        yield role
        for name in iam.list_role_policies(RoleName="contract")["PolicyNames"]:
            iam.delete_role_policy(RoleName="contract", PolicyName=name)
        for each in iam.list_attached_role_policies(RoleName="contract")["AttachedPolicies"]:
            iam.detach_role_policy(RoleName="contract", PolicyArn=each["PolicyArn"])
        iam.delete_role(RoleName="contract")
        assert code(iam.get_role, RoleName="contract") == "NoSuchEntity"

    def test_a_role_comes_back_as_it_was_made(self, iam, role):
        found = iam.get_role(RoleName="contract")["Role"]
        assert found["Arn"] == role["Arn"]
        assert found["AssumeRolePolicyDocument"] == TRUST
        assert found["Tags"] == [{"Key": "a", "Value": "é & <b>"}]
        assert found["MaxSessionDuration"] == 3600
        assert "contract" in [
            each["RoleName"] for page in iam.get_paginator("list_roles").paginate() for each in page["Roles"]
        ]
        again = {"RoleName": "contract", "AssumeRolePolicyDocument": json.dumps(TRUST)}
        assert code(iam.create_role, **again) == "EntityAlreadyExists"

    def test_its_policies(self, iam, role):
        iam.put_role_policy(RoleName="contract", PolicyName="p", PolicyDocument=json.dumps(RIGHTS))
        assert iam.get_role_policy(RoleName="contract", PolicyName="p")["PolicyDocument"] == RIGHTS
        assert iam.list_role_policies(RoleName="contract")["PolicyNames"] == ["p"]
        assert code(iam.delete_role, RoleName="contract") == "DeleteConflict"
        assert code(iam.get_role_policy, RoleName="contract", PolicyName="q") == "NoSuchEntity"
        bad = {"RoleName": "contract", "PolicyName": "q", "PolicyDocument": "{"}
        assert code(iam.put_role_policy, **bad) == "MalformedPolicyDocument"

    def test_its_tags_and_trust_change(self, iam, role):
        iam.tag_role(RoleName="contract", Tags=[{"Key": "b", "Value": ""}])
        iam.untag_role(RoleName="contract", TagKeys=["a"])
        assert iam.list_role_tags(RoleName="contract")["Tags"] == [{"Key": "b", "Value": ""}]
        iam.update_assume_role_policy(RoleName="contract", PolicyDocument=json.dumps({**TRUST, "Id": "new"}))
        assert iam.get_role(RoleName="contract")["Role"]["AssumeRolePolicyDocument"]["Id"] == "new"

    def test_what_is_not_there_is_said(self, iam):
        for act in (iam.get_role, iam.delete_role, iam.list_role_policies, iam.list_attached_role_policies):
            assert code(act, RoleName="nobody") == "NoSuchEntity"

    def test_the_caller_is_somebody(self, account):
        found = account.client("sts").get_caller_identity()
        assert found["Arn"].startswith(f"arn:aws:iam::{found['Account']}:") or account.name == "moto"
        assert len(found["Account"]) == 12


class TestLogs:
    @pytest.fixture
    def logs(self, account):
        client = account.client("logs")
        client.create_log_group(logGroupName="/contract/logs")
        client.create_log_stream(logGroupName="/contract/logs", logStreamName="s[1]x")
        yield client
        client.delete_log_group(logGroupName="/contract/logs")
        assert code(client.describe_log_streams, logGroupName="/contract/logs") == "ResourceNotFoundException"

    def test_events_come_back(self, logs):
        now = int(time.time() * 1000)
        events = [{"timestamp": now + number, "message": f"m{number} é"} for number in range(5)]
        named = {"logGroupName": "/contract/logs", "logStreamName": "s[1]x"}
        logs.put_log_events(**named, logEvents=events)
        assert [event["message"] for event in logs.get_log_events(**named, startFromHead=True)["events"]] == [
            event["message"] for event in events
        ]
        tail = logs.get_log_events(**named, limit=2)["events"]
        assert [event["timestamp"] for event in tail] == [now + 3, now + 4]
        found = logs.filter_log_events(logGroupName="/contract/logs", filterPattern="m3")["events"]
        assert [event["message"] for event in found] == ["m3 é"]
        (stream,) = logs.describe_log_streams(logGroupName="/contract/logs")["logStreams"]
        assert (stream["firstEventTimestamp"], stream["lastEventTimestamp"]) == (now, now + 4)

    def test_groups_have_a_retention(self, logs):
        logs.put_retention_policy(logGroupName="/contract/logs", retentionInDays=7)
        (group,) = logs.describe_log_groups(logGroupNamePrefix="/contract/logs")["logGroups"]
        assert group["retentionInDays"] == 7

    def test_what_is_there_or_is_not_is_said(self, logs):
        assert code(logs.create_log_group, logGroupName="/contract/logs") == "ResourceAlreadyExistsException"
        missing = {"logGroupName": "/contract/logs", "logStreamName": "none"}
        assert code(logs.get_log_events, **missing) == "ResourceNotFoundException"
        assert code(logs.delete_log_group, logGroupName="none") == "ResourceNotFoundException"


class TestBeside:
    """The local cloud alone."""

    def wait_for(self, look: Any, wanted: Any) -> None:
        end = time.monotonic() + 30
        while (found := look()) != wanted:
            assert time.monotonic() < end, found
            time.sleep(0.05)

    def test_a_connector_from_pending_to_gone(self, shared_cloud: LocalCloud) -> None:
        iam, core = shared_cloud.client("iam"), shared_cloud.client("lambda-core")
        role = iam.create_role(RoleName="operator", AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]["Arn"]
        vpc = {
            "SubnetIds": ["subnet-1"],
            "SecurityGroupIds": ["sg-1"],
            "NetworkProtocol": "IPv4",
            "AssociatedComputeResourceTypes": ["MicroVm"],
        }
        params = {"Name": "nat", "Configuration": {"VpcEgressConfiguration": vpc}, "OperatorRole": role}
        with pytest.raises(ClientError, match="invalid ConnectorOperatorRole permissions"):
            core.create_network_connector(**params)
        iam.put_role_policy(RoleName="operator", PolicyName="p", PolicyDocument=json.dumps(RIGHTS))
        made = core.create_network_connector(**params, Tags={"a": "b"})
        arn = made["Arn"]

        def run() -> Any:
            return shared_cloud.client().run_microvm(
                imageIdentifier="arn:aws:lambda:us-east-1:000000000000:microvm-image:local",
                egressNetworkConnectors=[arn],
            )

        with pytest.raises(ClientError, match="not active"):
            run()
        self.wait_for(lambda: core.get_network_connector(Identifier="nat")["State"], "ACTIVE")
        assert [each["Id"] for each in core.list_network_connectors()["NetworkConnectors"]] == [made["Id"]]
        assert shared_cloud.client().list_tags(Resource=arn)["Tags"] == {"a": "b"}
        vm = run()
        assert vm["egressNetworkConnectors"] == [arn]
        shared_cloud.client().terminate_microvm(microvmIdentifier=vm["microvmId"])
        vpc["SubnetIds"] = ["subnet-2"]
        core.update_network_connector(Identifier=arn, Configuration={"VpcEgressConfiguration": vpc})
        self.wait_for(lambda: core.get_network_connector(Identifier=arn)["LastUpdateStatus"], "Successful")
        listed = core.list_network_connector_versions(Identifier=arn)["NetworkConnectorVersions"]
        assert [each["Version"] for each in listed] == [1, 2]
        assert core.delete_network_connector(Identifier=arn)["State"] == "DELETING"
        self.wait_for(lambda: core.list_network_connectors()["NetworkConnectors"], [])
        assert code(core.get_network_connector, Identifier=arn) == "ResourceNotFoundException"

    def test_a_large_object_passes_through_little_memory(self, shared_cloud: LocalCloud) -> None:
        def most_kib() -> int:
            with open(f"/proc/{shared_cloud.process.pid}/status") as file:
                (line,) = (line for line in file if line.startswith("VmHWM"))
            return int(line.split()[1])

        s3 = shared_cloud.client("s3")
        s3.create_bucket(Bucket="large")
        before = most_kib()
        s3.put_object(Bucket="large", Key="k", Body=io.BytesIO(bytes(64 * MIB)))
        body = s3.get_object(Bucket="large", Key="k")["Body"]
        assert sum(len(piece) for piece in body.iter_chunks(MIB)) == 64 * MIB
        assert most_kib() - before < 16 * 1024
        s3.delete_object(Bucket="large", Key="k")
        s3.delete_bucket(Bucket="large")

    def test_the_output_of_a_vm_is_in_the_log_that_was_asked_for(self, shared_cloud: LocalCloud) -> None:
        api, logs = shared_cloud.client(), shared_cloud.client("logs")
        image = "arn:aws:lambda:us-east-1:000000000000:microvm-image:local"
        vm = api.run_microvm(imageIdentifier=image, logging={"cloudWatch": {"logGroup": "/contract/vm"}})
        self.wait_for(lambda: len(logs.describe_log_groups(logGroupNamePrefix="/contract/vm")["logGroups"]), 1)
        self.end(api, vm)
        # Its end is told when its log is complete.
        first, *_, last = logs.filter_log_events(logGroupName="/contract/vm")["events"]
        assert " listens on 127.0.0.1, port 8080, hooks 9000" in first["message"]
        assert "Z agentd: hook terminate: 200 after " in last["message"]
        (stream,) = logs.describe_log_streams(logGroupName="/contract/vm")["logStreams"]
        assert stream["logStreamName"].endswith(f"[1.0]{vm['microvmId']}")

    def end(self, api: Any, vm: Any) -> None:
        api.terminate_microvm(microvmIdentifier=vm["microvmId"])
        self.wait_for(lambda: api.get_microvm(microvmIdentifier=vm["microvmId"])["state"], "TERMINATED")

    def test_without_a_word_about_logs_it_is_in_the_one_of_its_image_unless_that_was_disabled(
        self, shared_cloud: LocalCloud
    ) -> None:
        api, logs = shared_cloud.client(), shared_cloud.client("logs")
        image = "arn:aws:lambda:us-east-1:000000000000:microvm-image:local"
        silent = api.run_microvm(imageIdentifier=image, logging={"disabled": {}})
        vm = api.run_microvm(imageIdentifier=image)
        self.wait_for(lambda: api.get_microvm(microvmIdentifier=vm["microvmId"])["state"], "RUNNING")
        for each in (silent, vm):
            self.end(api, each)
        group = "/aws/lambda-microvms/local"
        name = f"{vm['startedAt'].astimezone(timezone.utc):%Y/%m/%d}[1.0]{vm['microvmId']}"
        streams = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=name)["logStreams"]
        assert [stream["logStreamName"] for stream in streams] == [name]
        pages = logs.get_paginator("describe_log_streams").paginate(
            logGroupName=group, PaginationConfig={"PageSize": 1}
        )
        names = [stream["logStreamName"] for page in pages for stream in page["logStreams"]]
        assert name in names
        assert not any(silent["microvmId"] in each for each in names)
        (last,) = logs.get_log_events(logGroupName=group, logStreamName=name, limit=1)["events"]
        assert "Z agentd: hook terminate: 200 after " in last["message"]

    @pytest.mark.skipif(not AWS_CLI.exists(), reason="needs the AWS CLI that tools/test installs")
    def test_the_aws_cli_by_what_local_env_prints(self, shared_cloud: LocalCloud, tmp_path: Any) -> None:
        (tmp_path / "up").write_bytes(os.urandom(9 * MIB))

        def aws(*words: str) -> str:
            done = subprocess.run(
                [str(AWS_CLI), *words],
                env=shared_cloud.environ,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        assert json.loads(aws("sts", "get-caller-identity"))["Account"] == "000000000000"
        aws("s3", "mb", "s3://by-cli")
        aws("s3", "cp", "up", "s3://by-cli/a/é b", "--no-progress")
        assert "a/é b" in aws("s3", "ls", "s3://by-cli", "--recursive")
        aws("s3", "cp", "s3://by-cli/a/é b", "down", "--no-progress")
        assert (tmp_path / "down").read_bytes() == (tmp_path / "up").read_bytes()
        aws("s3", "rm", "s3://by-cli/a/é b")
        aws("s3", "rb", "s3://by-cli")
        document = json.dumps(TRUST)
        aws("iam", "create-role", "--role-name", "by-cli", "--assume-role-policy-document", document)
        assert "by-cli" in aws("iam", "list-roles", "--query", "Roles[].RoleName")
        aws("iam", "delete-role", "--role-name", "by-cli")
        aws("logs", "create-log-group", "--log-group-name", "/by/cli")
        assert "/by/cli" in aws("logs", "describe-log-groups")
        aws("logs", "delete-log-group", "--log-group-name", "/by/cli")

    def test_what_was_put_outlives_the_daemon(self) -> None:
        import tempfile

        from tests.support.cloud import fast_folder, open_cloud

        with tempfile.TemporaryDirectory(prefix="vmnest-test-", dir=fast_folder()) as folder:
            with open_cloud(folder=folder) as cloud:
                cloud.client("s3").create_bucket(Bucket="kept")
                cloud.client("s3").put_object(Bucket="kept", Key="k", Body=b"x")
                cloud.client("iam").create_role(RoleName="kept", AssumeRolePolicyDocument=json.dumps(TRUST))
                cloud.client("logs").create_log_group(logGroupName="kept")
            with open_cloud(folder=folder) as cloud:
                assert cloud.client("s3").get_object(Bucket="kept", Key="k")["Body"].read() == b"x"
                assert cloud.client("iam").get_role(RoleName="kept")["Role"]["RoleName"] == "kept"
                assert cloud.client("logs").describe_log_groups()["logGroups"][0]["logGroupName"] == "kept"
                for path, folders, names in os.walk(os.path.join(folder, "account")):
                    modes = [os.stat(os.path.join(path, name)).st_mode & 0o777 for name in names]
                    assert set(modes) <= {0o600}
                    assert {os.stat(os.path.join(path, name)).st_mode & 0o777 for name in folders} <= {0o700}
