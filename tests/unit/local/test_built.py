"""What a build leaves behind, on its way through JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vmnest.local import hooks
from vmnest.local.built import Built, RunConfig, Sizes, platform_environment

BUILT = Built(
    layers=("b", "a"),
    config=RunConfig(
        command=("python3", "-m", "x"),
        environment={"A": "1"},
        workdir="/work",
        exposed=("80/tcp",),
        hooks=hooks.Config(port=9001, ready=60, run=1.5),
    ),
    sizes=Sizes(1, 2),
)


def test_it_survives_a_daemon() -> None:
    assert Built.from_wire(json.loads(json.dumps(BUILT.to_wire()))) == BUILT


@pytest.mark.parametrize(
    "change",
    [
        {"layers": None},
        {"layers": [1]},
        {"config": {}},
        {"sizes": {"x": 1}},
        {"config": {**BUILT.to_wire()["config"], "environment": {"a": 1}}},  # type: ignore[dict-item]
        {"config": {**BUILT.to_wire()["config"], "hooks": {"x": 1}}},  # type: ignore[dict-item]
    ],
)
def test_what_is_none_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no built image"):
        Built.from_wire({**BUILT.to_wire(), **change})


def test_a_vm_knows_its_image() -> None:
    arn = "arn:aws:lambda:us-east-1:000000000000:microvm-image:demo"
    assert platform_environment(arn, "2.0") == {
        "AWS_LAMBDA_MICROVM_IMAGE_NAME": "demo",
        "AWS_LAMBDA_MICROVM_IMAGE_ARN": arn,
        "AWS_LAMBDA_MICROVM_IMAGE_VERSION": "2.0",
        "AWS_REGION": "us-east-1",
    }
