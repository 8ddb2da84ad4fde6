"""What a sandbox starts from when the caller does not say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.sandbox_yaml import write
from vmnest import errors
from vmnest.infra.state import StackState, Store
from vmnest.sandbox import wiring

IMAGE = "arn:aws:lambda:eu-west-1:123456789012:microvm-image:guest"
ROLE = "arn:aws:iam::123456789012:role/exec"
CONNECTOR = "arn:aws:lambda:eu-west-1:123456789012:network-connector:nc-1"
HERE = {
    "image_arn": "arn:aws:lambda:us-east-1:000000000000:microvm-image:mine",
    "execution_role_arn": "arn:aws:iam::000000000000:role/mine",
}
BUILT_IN = "arn:aws:lambda:us-east-1:000000000000:microvm-image:local"


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """An environment with a record of stacks, and a folder without a sandbox.yaml."""
    monkeypatch.chdir(tmp_path)
    return {"AGENT_SANDBOX_INFRA_STATE": str(tmp_path / "infra-state.json"), "HOME": str(tmp_path)}


@pytest.fixture
def store(environ: Mapping[str, str]) -> Store:
    return Store(environ["AGENT_SANDBOX_INFRA_STATE"])


@pytest.fixture
def up(store: Store) -> None:
    """A stack is up on AWS, and one on this machine."""
    offered = {"image_arn": IMAGE, "execution_role_arn": ROLE, "egress_network_connector_arn": CONNECTOR}
    store.save(StackState("p", "there", outputs=offered))
    store.save(StackState("p", "here", target="local", outputs=HERE))


def resolve(environ: Mapping[str, str], **given: Any) -> wiring.Wiring:
    given = {"image": None, "role": None, "local": None, "region": None, **given}
    return wiring.resolve(environ=environ, **given)


def test_where_nothing_is_up_an_image_must_be_named(environ: Mapping[str, str]) -> None:
    with pytest.raises(errors.UsageError, match="no image to start from") as caught:
        resolve({**environ, "AWS_REGION": "eu-west-1"})
    assert "vmnest infra up" in str(caught.value.hint)
    found = resolve(environ, local=True)
    assert (found.image, found.role, found.sources) == (BUILT_IN, None, {})


@pytest.mark.usefixtures("up")
def test_what_is_up_is_used_and_its_region_with_it(environ: Mapping[str, str]) -> None:
    found = resolve({**environ, "AWS_REGION": "us-west-2"})
    assert (found.image, found.role, found.place.region) == (IMAGE, ROLE, "eu-west-1")
    assert found.sources == {"image_arn": "output of p/there", "execution_role_arn": "output of p/there"}


@pytest.mark.usefixtures("up")
def test_a_stack_of_the_other_target_is_not_used(environ: Mapping[str, str]) -> None:
    found = resolve(environ, local=True)
    assert (found.image, found.role) == (HERE["image_arn"], HERE["execution_role_arn"])
    assert found.sources["image_arn"] == "output of p/here"
    assert resolve({**environ, "AGENT_SANDBOX_TARGET": "local"}).image == HERE["image_arn"]


@pytest.mark.usefixtures("up")
def test_what_is_given_comes_first_and_then_the_environment(environ: Mapping[str, str]) -> None:
    other = IMAGE + "-2"
    configured = {**environ, "AGENT_SANDBOX_IMAGE_ARN": other, "AGENT_SANDBOX_EXECUTION_ROLE_ARN": ROLE + "-2"}
    found = resolve(configured)
    assert (found.image, found.role, found.sources) == (other, ROLE + "-2", {})
    found = resolve(configured, image=IMAGE + "-3", role=ROLE + "-3")
    assert (found.image, found.role, found.sources) == (IMAGE + "-3", ROLE + "-3", {})
    found = resolve(configured, local=True)
    assert (found.image, found.role) == (HERE["image_arn"], HERE["execution_role_arn"])


@pytest.mark.usefixtures("up")
def test_an_image_that_is_named_gets_the_role_that_is_up(environ: Mapping[str, str]) -> None:
    found = resolve(environ, image=IMAGE + "-2")
    assert (found.role, found.sources) == (ROLE, {"execution_role_arn": "output of p/there"})
    found = resolve({**environ, "AWS_REGION": "eu-west-1"}, image="by-name")
    assert found.role == ROLE


@pytest.mark.usefixtures("up")
def test_the_role_is_not_taken_to_another_account(environ: Mapping[str, str]) -> None:
    found = resolve(environ, image=IMAGE.replace("123456789012", "210987654321"))
    assert (found.role, found.sources) == (None, {})


@pytest.mark.usefixtures("up")
def test_an_image_of_a_stack_finds_the_role_of_that_stack(
    environ: Mapping[str, str], store: Store, tmp_path: Path
) -> None:
    store.save(StackState("q", "dev", outputs={"image_arn": IMAGE + "-q", "execution_role_arn": ROLE + "-q"}))
    write(tmp_path / "sandbox.yaml", "this is not even: read")
    assert resolve(environ, image=IMAGE + "-q").role == ROLE + "-q"
    assert resolve({**environ, "AGENT_SANDBOX_IMAGE_ARN": IMAGE}).role == ROLE


@pytest.mark.usefixtures("up")
def test_a_region_that_the_stack_is_not_in_is_refused(environ: Mapping[str, str]) -> None:
    with pytest.raises(
        errors.UsageError, match=r"the image \(the output of p/there\) is in eu-west-1, and the sandbox"
    ):
        resolve(environ, region="us-west-2")
    assert resolve(environ, region="eu-west-1").image == IMAGE


@pytest.mark.usefixtures("up")
def test_the_connector_is_configured_or_offered(environ: Mapping[str, str]) -> None:
    def find(*, local: bool | None = None, **more: str) -> str | None:
        return wiring.egress_connector(local=local, environ={**environ, **more})

    assert find() == CONNECTOR
    assert find(AGENT_SANDBOX_EGRESS_CONNECTOR=CONNECTOR + "-2") == CONNECTOR + "-2"
    assert find(local=True, AGENT_SANDBOX_EGRESS_CONNECTOR=CONNECTOR) is None


def test_what_is_all_given_needs_no_record(environ: Mapping[str, str]) -> None:
    Path(environ["AGENT_SANDBOX_INFRA_STATE"]).write_bytes(b"damaged")
    assert resolve(environ, image=IMAGE, role=ROLE).role == ROLE
    with pytest.raises(errors.StateFileError, match="damaged"):
        resolve(environ, image=IMAGE)
