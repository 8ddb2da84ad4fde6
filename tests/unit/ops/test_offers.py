"""What a new sandbox would start from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.sandbox_yaml import write
from vmnest import errors
from vmnest.infra import state
from vmnest.infra.state import StackState
from vmnest.ops import offers

IMAGE = "arn:aws:lambda:eu-west-1:123456789012:microvm-image:guest"
ROLE = "arn:aws:iam::123456789012:role/guest"
CONNECTOR = "arn:aws:lambda:eu-west-1:123456789012:network-connector:nc-1"
LOCAL_ROLE = "arn:aws:iam::000000000000:role/guest"
LOCAL_IMAGE = "arn:aws:lambda:us-east-1:000000000000:microvm-image:guest"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without infrastructure, and no settings but that."""
    monkeypatch.setenv("AGENT_SANDBOX_INFRA_STATE", str(tmp_path / "infra.json"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def record(label: str, *, image: str = IMAGE, target: str = "aws", **outputs: str | list[str]) -> None:
    project, _, stack = label.partition("/")
    found = {"image_arn": image, "execution_role_arn": ROLE, **outputs}
    state.open_default().save(StackState(project, stack, target=target, region="eu-west-1", outputs=found))


def show(**how: Any) -> dict[str, Any]:
    return offers.show_offers(**how)


def test_without_infrastructure_everything_is_open() -> None:
    told = show()
    assert (told["ready"], told["target"], told["region"]) == (False, "aws", None)
    assert (told["project"], told["stack"], told["raw_infra_outputs"]) == (None, None, {})
    for name in ("image_arn", "role_arn", "egress_connector_arn"):
        assert told[name] == {"value": None, "source": "unset"}


def test_this_machine_always_has_an_image() -> None:
    told = show(local=True)
    assert (told["ready"], told["target"]) == (True, "local")
    assert told["image_arn"] == {"value": "local", "source": "default"}
    assert told["role_arn"]["source"] == "unset"


def test_a_stack_offers_what_it_has() -> None:
    record(
        "demo/dev",
        egress_network_connector_arn=CONNECTOR,
        build_bucket="bucket",
        vpc_id="vpc-1",
        subnet_ids=["subnet-1"],
        security_group_id="sg-1",
    )
    told = show()
    assert (told["ready"], told["project"], told["stack"], told["region"]) == (True, "demo", "dev", "eu-west-1")
    assert told["image_arn"] == {"value": IMAGE, "source": "infra"}
    assert told["role_arn"] == {"value": ROLE, "source": "infra"}
    assert told["egress_connector_arn"] == {"value": CONNECTOR, "source": "infra"}
    assert told["build_bucket"] == "bucket"
    assert told["network"] == {"vpc_id": "vpc-1", "subnet_ids": ["subnet-1"], "security_group_id": "sg-1"}
    assert told["raw_infra_outputs"]["image_arn"] == IMAGE
    assert show(project="demo") == show(stack="dev") == told


def test_the_environment_comes_first_unless_a_stack_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    record("demo/dev")
    other = IMAGE.replace("guest", "other")
    monkeypatch.setenv("AGENT_SANDBOX_IMAGE_ARN", other)
    monkeypatch.setenv("AGENT_SANDBOX_EGRESS_CONNECTOR", CONNECTOR)
    told = show()
    assert told["image_arn"] == {"value": other, "source": "env"}
    assert told["role_arn"] == {"value": ROLE, "source": "infra"}
    assert told["egress_connector_arn"] == {"value": CONNECTOR, "source": "env"}
    chosen = show(project="demo")
    assert chosen["image_arn"] == {"value": IMAGE, "source": "infra"}
    assert chosen["egress_connector_arn"]["source"] == "unset"


def test_a_role_is_offered_to_what_may_have_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    record("demo/dev")
    monkeypatch.setenv("AGENT_SANDBOX_IMAGE_ARN", IMAGE.replace("123456789012", "999999999999"))
    assert show()["role_arn"] == {"value": None, "source": "unset"}
    record("demo/dev", image=LOCAL_IMAGE, target="local", execution_role_arn=LOCAL_ROLE)
    assert show(local=True)["role_arn"]["source"] == "infra"
    monkeypatch.setenv("AGENT_SANDBOX_IMAGE_ARN", LOCAL_IMAGE.replace("guest", "other"))
    assert show(local=True)["role_arn"]["source"] == "unset"


def test_one_of_several_is_chosen_by_name_or_by_file(folder: Path) -> None:
    record("a/dev", image=IMAGE.replace("guest", "a"))
    record("a/prod", image=IMAGE.replace("guest", "b"))
    record("b/dev", image=LOCAL_IMAGE, target="local")
    write(folder / "other.yaml", "project: a\nstack: prod\n")
    assert show()["image_arn"]["source"] == "unset"
    assert show(project="a", stack="prod")["image_arn"]["value"] == IMAGE.replace("guest", "b")
    assert show(files=["other.yaml"]) == show(stack="prod")
    assert show(project="b", local=True)["project"] == "b"
    with pytest.raises(errors.UsageError, match="a/dev, a/prod"):
        show(project="a")
    for how in ({"project": "b"}, {"project": "c"}, {"files": ["other.yaml"], "project": "b"}):
        with pytest.raises(errors.NotFoundError, match="no such stack is up on AWS"):
            show(**how)
