"""The package whose command line ours keeps, led to the local cloud by what ``local env`` prints.

It is a client that somebody else wrote, over boto3: its infrastructure comes up and goes again, and nothing is left.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.cloud import LocalCloud
from tests.support.paths import ROOT, UPSTREAM_PYTHON

PROGRAM = UPSTREAM_PYTHON.with_name("vmnest")
IMAGE = "arn:aws:lambda:us-east-1:000000000000:microvm-image:upstream-guest"
CONFIG = """
project: theirs
stack: dev
region: us-east-1
image: {name: upstream-guest, guest_dir: ./guest}
role: {name: upstream-exec}
"""

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="needs the upstream package that tools/test installs")


def run(folder: Path, cloud: LocalCloud, *words: str) -> str:
    environ = {
        **cloud.environ,
        "AGENT_SANDBOX_STATE": str(folder / "state.json"),
        "AGENT_SANDBOX_INFRA_STATE": str(folder / "infra.json"),
        "AGENT_SANDBOX_REGION": "us-east-1",
    }
    done = subprocess.run(
        [str(PROGRAM), *words], cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_infrastructure_comes_up_and_goes(local_cloud: LocalCloud, tmp_path: Path) -> None:
    (tmp_path / "sandbox.yaml").write_text(CONFIG)
    shutil.copytree(ROOT / "guest", tmp_path / "guest", ignore=shutil.ignore_patterns("__pycache__"))
    run(tmp_path, local_cloud, "infra", "up")
    found = json.loads(run(tmp_path, local_cloud, "infra", "output"))
    assert found["image_arn"] == IMAGE
    assert found["execution_role_arn"] == "arn:aws:iam::000000000000:role/upstream-exec"
    s3, iam, api = local_cloud.client("s3"), local_cloud.client("iam"), local_cloud.client()
    assert api.get_microvm_image(imageIdentifier=IMAGE)["latestActiveImageVersion"] == "1.0"
    assert s3.list_objects_v2(Bucket=found["build_bucket"])["KeyCount"] == 1
    run(tmp_path, local_cloud, "infra", "destroy")
    assert s3.list_buckets()["Buckets"] == []
    assert iam.list_roles()["Roles"] == []
    assert [image["name"] for image in api.list_microvm_images()["items"]] == ["local"]
