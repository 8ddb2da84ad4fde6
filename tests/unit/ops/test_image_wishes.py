"""What an image to build shall be, from whichever source says it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from vmnest import errors
from vmnest.control.images import Images
from vmnest.deadline import Deadline
from vmnest.ops import image_wishes
from vmnest.ops.image_wishes import Intent, Wish


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own, with keys for AWS and nowhere to go."""
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "AGENT_SANDBOX_LOCAL_DIR": str(tmp_path / "local"),
        "AGENT_SANDBOX_INFRA_STATE": str(tmp_path / "infra.json"),
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def resolve(wish: Wish | None = None, *, local: bool | None = None, region: str | None = None) -> Intent:
    from vmnest import settings

    return image_wishes.resolve(wish or Wish(), local=local, region=region, environ=settings.environment())


def write_yaml(here: Path, text: str) -> None:
    (here / "sandbox.yaml").write_text(text)


def test_without_a_name_there_is_no_image() -> None:
    with pytest.raises(errors.UsageError, match="no name") as caught:
        resolve()
    assert "--name" in str(caught.value.hint)


def test_sandbox_yaml_says_what_is_not_given(here: Path) -> None:
    write_yaml(
        here,
        "project: p\nregion: eu-west-1\nimage:\n  name: told\n  guest_dir: ./other\n  memory: 1024\n"
        "  environment: {A: file, B: file}\n  log_group: /g\n  capabilities: [ALL]\n"
        "tags: {owner: me}\n",
    )
    (here / "other").mkdir()
    (here / "other" / "Dockerfile").write_text("FROM scratch\n")
    intent = resolve(Wish(environment={"B": "given"}))
    assert (intent.name, intent.memory, intent.place.region) == ("told", 1024, "eu-west-1")
    assert intent.environment == {"A": "file", "B": "given"}
    assert intent.directory(None) == str(here / "other")
    assert intent.directory("mine") == "mine"
    spec = intent.spec(uri="s3://b/k", role="r", base_image="arn:x", hooks=None)
    assert (spec.log_group, spec.has_all_capabilities, dict(spec.tags)) == ("/g", True, {"owner": "me"})
    assert spec.local_options is None


def test_what_is_given_is_stronger(here: Path) -> None:
    write_yaml(here, "project: p\nregion: eu-west-1\nimage: {name: told, memory: 1024, log_group: /g}\n")
    intent = resolve(Wish(name="told", memory=512, log_group="/mine"), region="us-west-2")
    assert (intent.memory, intent.place.region) == (512, "us-west-2")
    assert intent.spec(uri="s3://b/k", role="r", base_image="arn:x", hooks=None).log_group == "/mine"


def test_another_name_than_that_of_sandbox_yaml_is_another_image(here: Path) -> None:
    write_yaml(here, "project: p\nimage: {name: told, memory: 1024}\n")
    intent = resolve(Wish(name="other"))
    assert (intent.memory, intent.stack) == (None, None)


def test_several_images_in_sandbox_yaml_want_a_choice(here: Path) -> None:
    write_yaml(here, "project: a\nimage: {name: one}\n---\nproject: b\nimage: {name: two, memory: 512}\n")
    with pytest.raises(errors.UsageError, match="several images") as caught:
        resolve()
    assert "one, two" in str(caught.value.hint)
    assert resolve(Wish(name="two")).memory == 512


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (Wish(name="x", memory=3000), "3000 MiB"),
        (Wish(name="x", environment={"AWS_REGION": "y"}), "AWS_REGION"),
        (Wish(name="bad name!"), "no image can be named"),
        (Wish(name="x", egress_allow=["internet"]), "this machine only"),
    ],
    ids=["memory", "variable", "name", "egress-on-aws"],
)
def test_what_cannot_be_is_refused(wish: Wish, words: str) -> None:
    with pytest.raises(errors.UsageError, match=words):
        resolve(wish)


def test_on_aws_a_bucket_and_a_role_must_be_known(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deadline = Deadline(5)
    intent = resolve(Wish(name="x"))
    with pytest.raises(errors.UsageError, match="no bucket"):
        intent.bucket(deadline)
    with pytest.raises(errors.UsageError, match="no role"):
        intent.role(deadline)
    monkeypatch.setenv("AGENT_SANDBOX_EXECUTION_ROLE_ARN", "arn:aws:iam::111122223333:role/configured")
    assert intent.role(deadline) == "arn:aws:iam::111122223333:role/configured"
    given = resolve(Wish(name="x", bucket="mine", role="arn:aws:iam::111122223333:role/given"))
    assert (given.bucket(deadline), given.role(deadline)) == ("mine", "arn:aws:iam::111122223333:role/given")


def test_bucket_and_role_of_the_infrastructure_are_taken(here: Path) -> None:
    outputs = {"build_bucket": "made", "execution_role_arn": "arn:aws:iam::111122223333:role/made"}
    (here / "infra.json").write_text(json.dumps({"stacks": {"p/dev": {"resources": {}, "outputs": outputs}}}))
    intent = resolve(Wish(name="x"))
    assert intent.bucket(Deadline(5)) == "made"
    assert intent.role(Deadline(5)) == "arn:aws:iam::111122223333:role/made"


def test_aws_runs_on_arm_and_this_machine_on_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve(Wish(name="x")).architecture == "ARM_64"
    here = resolve(Wish(name="x"), local=True).architecture
    assert here == ("X86_64" if os.uname().machine == "x86_64" else "ARM_64")


def test_what_a_local_build_may_reach_travels_beside_the_request() -> None:
    intent = resolve(Wish(name="x", egress_allow=["pypi.org"]), local=True)
    spec = intent.spec(uri="s3://b/k", role="r", base_image="arn:x", hooks=None)
    assert spec.local_options == {"egress_allow": ["pypi.org"]}
    assert resolve(Wish(name="x"), local=True).spec(uri="u", role="r", base_image="b", hooks=None).local_options is None


def test_a_wish_does_not_show_its_variables() -> None:
    assert "secret" not in repr(Wish(name="x", environment={"A": "secret"}))


def test_with_a_stacks_role_the_content_goes_where_that_role_may_read(here: Path) -> None:
    role = "arn:aws:iam::111122223333:role/made"
    image_arn = "arn:aws:lambda:us-east-1:111122223333:microvm-image:guest"
    outputs = {"build_bucket": "made", "execution_role_arn": role, "image_arn": image_arn}
    (here / "infra.json").write_text(json.dumps({"stacks": {"p/dev": {"resources": {}, "outputs": outputs}}}))
    intent = resolve(Wish(name="other"))
    assert intent.folder(bucket="made", role=role) == "guest"
    assert intent.folder(bucket="mine", role="arn:aws:iam::111122223333:role/mine") == "other"
    with pytest.raises(errors.UsageError, match="may not read the bucket mine") as caught:
        intent.folder(bucket="mine", role=role)
    assert "--role" in str(caught.value.hint)


class Managed:
    """The service's own images, as far as a choice among them needs them."""

    def managed(self, *, deadline: Deadline) -> Iterator[str]:
        yield from (f"arn:aws:lambda:us-east-1:aws:microvm-image:{name}" for name in ("al2025-1", "al2023-1"))


def test_the_base_image_is_the_newest_or_named() -> None:
    images, deadline = cast("Images", Managed()), Deadline(5)
    assert resolve(Wish(name="x")).base_image(images, deadline).endswith(":al2025-1")
    assert resolve(Wish(name="x", base_image="al2023-1")).base_image(images, deadline).endswith(":al2023-1")
    assert resolve(Wish(name="x", base_image="arn:mine")).base_image(images, deadline) == "arn:mine"
    with pytest.raises(errors.ImageNotFoundError, match="no image al2 in us-east-1") as caught:
        resolve(Wish(name="x", base_image="al2")).base_image(images, deadline)
    assert "--managed" in str(caught.value.hint)
