"""A local cloud in which images can be built: it has artifacts, a build role, and boto3 to ask it."""

from __future__ import annotations

import io
import json
import time
import uuid
import zipfile
from typing import Any

from botocore.config import Config

from tests.support.cloud import LocalCloud

ARN = "arn:aws:lambda:us-east-1:000000000000:microvm-image:"
BASE = "arn:aws:lambda:us-east-1:aws:microvm-image:al2023-1"
CONNECTOR = "arn:aws:lambda:us-east-1:aws:network-connector:aws-network-connector:"
BUCKET = "artifacts"
GOOD, FAILING, ENDLESS = "good.zip", "failing.zip", "endless.zip"
COMMAND = 'CMD ["python3", "-c", "import time; time.sleep(3600)"]\n'
DOCKERFILES = {
    GOOD: f"FROM scratch\nENV GREETING=hello\n{COMMAND}",
    FAILING: f"FROM scratch\nRUN exit 3\n{COMMAND}",
    ENDLESS: f"FROM scratch\nRUN sleep 3600\n{COMMAND}",
}
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}
WAIT_SECONDS = 120.0

Answer = dict[str, Any]


class Works:
    """The image operations of a cloud that has artifacts and a build role."""

    def __init__(self, cloud: LocalCloud) -> None:
        self.cloud = cloud
        self.api = cloud.client()
        self.unchecked = cloud.client(
            config=Config(parameter_validation=False, retries={"total_max_attempts": 1}, proxies={})
        )
        objects = cloud.client("s3")
        objects.create_bucket(Bucket=BUCKET)
        for key, text in DOCKERFILES.items():
            objects.put_object(Bucket=BUCKET, Key=key, Body=pack(text))
        role = cloud.client("iam").create_role(RoleName="build", AssumeRolePolicyDocument=json.dumps(TRUST))
        self.role = role["Role"]["Arn"]

    def settings(self, key: str = GOOD, **changes: Any) -> dict[str, Any]:
        """What an image of that artifact is made with."""
        artifact = {"uri": f"s3://{BUCKET}/{key}"}
        return {"baseImageArn": BASE, "buildRoleArn": self.role, "codeArtifact": artifact, **changes}

    def create(self, key: str = GOOD, *, name: str | None = None, **changes: Any) -> str:
        """A new image whose build has ended: its ARN."""
        name = name or f"image-{uuid.uuid4()}"
        arn: str = self.api.create_microvm_image(name=name, **self.settings(key, **changes))["imageArn"]
        self.settle(arn)
        return arn

    def update(self, arn: str, key: str = GOOD, **changes: Any) -> Answer | None:
        """UpdateMicrovmImage, and wait for the end of the build."""
        self.api.update_microvm_image(imageIdentifier=arn, **self.settings(key, **changes))
        return self.settle(arn)

    def settle(self, arn: str) -> Answer | None:
        """What GetMicrovmImage says once no change is under way; None if the image is gone."""
        end = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                found: Answer = self.api.get_microvm_image(imageIdentifier=arn)
            except self.api.exceptions.ResourceNotFoundException:
                return None
            if found["state"] not in {"CREATING", "UPDATING", "DELETING"}:
                return found
            assert time.monotonic() < end, found
            time.sleep(0.02)

    def version(self, arn: str, label: str = "1.0") -> Answer:
        """GetMicrovmImageVersion."""
        found: Answer = self.api.get_microvm_image_version(imageIdentifier=arn, imageVersion=label)
        return found

    def wait_for_line(self, arn: str, text: str) -> None:
        """Wait until the log of the image's builds says that."""
        logs, group = self.cloud.client("logs"), f"/aws/lambda-microvms/{arn.rpartition(':')[2]}"
        end = time.monotonic() + WAIT_SECONDS
        while not any(text in event["message"] for event in logs.filter_log_events(logGroupName=group)["events"]):
            assert time.monotonic() < end, f"no {text} in {group}"
            time.sleep(0.02)

    def builds(self, arn: str, label: str = "1.0", **filters: Any) -> list[Answer]:
        """ListMicrovmImageBuilds."""
        answer = self.api.list_microvm_image_builds(imageIdentifier=arn, imageVersion=label, **filters)
        items: list[Answer] = answer["items"]
        return items

    def run(self, arn: str, **params: Any) -> Answer:
        """RunMicrovm, and wait until it runs."""
        started = self.api.run_microvm(imageIdentifier=arn, maximumDurationInSeconds=600, **params)
        return self.wait_for_microvm(started["microvmId"], "RUNNING")

    def terminate(self, microvm_id: str) -> None:
        """TerminateMicrovm, and wait for the end."""
        self.api.terminate_microvm(microvmIdentifier=microvm_id)
        self.wait_for_microvm(microvm_id, "TERMINATED")

    def wait_for_microvm(self, microvm_id: str, state: str) -> Answer:
        """What GetMicrovm says once it is in that state."""
        end = time.monotonic() + WAIT_SECONDS
        found: Answer
        while (found := self.api.get_microvm(microvmIdentifier=microvm_id))["state"] != state:
            assert found["state"] != "TERMINATED", found.get("stateReason")
            assert time.monotonic() < end, found
            time.sleep(0.02)
        return found


def pack(text: str) -> bytes:
    """The artifact of a Dockerfile."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("Dockerfile", text)
    return packed.getvalue()
