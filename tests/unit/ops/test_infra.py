"""The verbs of infrastructure over an account in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.memory_account import MemoryAccount
from tests.support.sandbox_yaml import write, write_stack
from vmnest import errors
from vmnest.infra.plan import Plan
from vmnest.infra.state import StackState, Store
from vmnest.infra.steps import Event
from vmnest.ops import infra

CONNECTOR = "arn:aws:lambda:us-east-1:111122223333:network-connector:nc-1"


class RecordingFront:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def on_begin(self, label: str) -> None:
        self.told.append((label, "begin"))

    def on_plan(self, label: str, plan: Plan) -> None:
        self.told.append((label, "plan"))

    def on_event(self, label: str, event: Event) -> None:
        if event.phase in ("done", "failed"):
            self.told.append((label, f"{event.phase} {event.resource}"))

    def on_end(self, label: str, error: BaseException | None) -> None:
        self.told.append((label, "end" if error is None else f"end {type(error).__name__}"))


def only(data: dict[str, object]) -> dict[str, Any]:
    stacks = data["stacks"]
    assert isinstance(stacks, list)
    (stack,) = stacks
    assert isinstance(stack, dict)
    assert json.loads(json.dumps(stack)) == stack
    return stack


def test_what_is_previewed_is_done_and_then_nothing_is_left_to_do(
    memory_account: MemoryAccount, tmp_path: Path
) -> None:
    write_stack(tmp_path / "sandbox.yaml")
    before = memory_account.inventory()
    plan = only(infra.preview_infra())
    assert (plan["project"], plan["stack"], plan["target"], plan["region"]) == ("demo", "dev", "aws", "us-east-1")
    assert [(each["resource"], each["action"]) for each in plan["steps"]] == [
        (name, "create") for name in ("role", "bucket", "guest_object", "image")
    ]
    assert plan["has_changes"] is True
    assert memory_account.inventory() == before
    front = RecordingFront()
    up = only(infra.up_infra(front=front))
    assert (up["project"], up["stack"], up["target"], up["region"]) == ("demo", "dev", "aws", "us-east-1")
    assert set(up) >= {"image_arn", "image_version", "execution_role_arn", "build_bucket"}
    assert infra.infra_outputs() == up
    done = [("demo/dev", f"done {name}") for name in ("role", "bucket", "guest_object", "image")]
    assert front.told == [("demo/dev", "begin"), ("demo/dev", "plan"), *done, ("demo/dev", "end")]
    plan = only(infra.preview_infra())
    assert (plan["has_changes"], {each["action"] for each in plan["steps"]}) == (False, {"nothing"})


def test_a_changed_guest_is_told_with_what_differs_and_rebuilt(memory_account: MemoryAccount, tmp_path: Path) -> None:
    write_stack(tmp_path / "sandbox.yaml")
    before = only(infra.up_infra())
    write(tmp_path / "small" / "program.py", "2\n")
    (step,) = [each for each in only(infra.preview_infra())["steps"] if each["resource"] == "image"]
    assert step["action"] == "update"
    assert step["changes"]
    assert set(step["changes"][0]) == {"field", "old", "new"}
    after = only(infra.up_infra())
    assert (before["image_version"], after["image_version"]) == ("1.0", "2.0")
    assert only(infra.up_infra(rebuild=True))["image_version"] == "3.0"


def test_what_is_gone_is_dropped_from_the_record(memory_account: MemoryAccount, tmp_path: Path) -> None:
    write_stack(tmp_path / "sandbox.yaml")
    infra.up_infra()
    assert only(infra.refresh_infra())["changes"] == []
    memory_account.images.known.clear()
    refreshed = only(infra.refresh_infra())
    assert [(each["resource"], each["action"]) for each in refreshed["changes"]] == [("image", "delete")]
    assert "image_arn" not in refreshed["outputs"]


def test_what_was_made_is_removed_and_nothing_is_left(memory_account: MemoryAccount, tmp_path: Path) -> None:
    write_stack(tmp_path / "sandbox.yaml")
    before = memory_account.inventory()
    infra.up_infra()
    plan = only(infra.plan_removal())
    assert [(each["resource"], each["action"]) for each in plan["steps"]] == [
        (name, "delete") for name in ("image", "guest_object", "bucket", "role")
    ]
    front = RecordingFront()
    removed = only(infra.destroy_infra(front=front))
    assert [each["action"] for each in removed["steps"]] == ["delete"] * 4
    assert front.told[1] == ("demo/dev", "plan")
    assert memory_account.inventory() == before
    assert infra.infra_list() == {"stacks": [], "count": 0}
    assert infra.infra_outputs() == {}
    assert only(infra.destroy_infra())["steps"] == []


def test_stacks_of_several_files_are_made_side_by_side(memory_account: MemoryAccount, tmp_path: Path) -> None:
    for project in ("a", "b", "c"):
        write_stack(tmp_path / f"{project}.yaml", project=project)
    data = infra.up_infra(files=[str(tmp_path)], parallelism=2)
    assert isinstance(data["stacks"], list)
    assert [each["project"] for each in data["stacks"]] == ["a", "b", "c"]
    listed = infra.infra_list()
    assert listed["count"] == 3
    with pytest.raises(errors.UsageError, match="several stacks are up: a/dev, b/dev, c/dev"):
        infra.infra_outputs(files=[str(tmp_path)])
    assert infra.infra_outputs(files=["b.yaml"])["project"] == "b"
    infra.destroy_infra(files=[str(tmp_path)])
    assert infra.infra_list()["count"] == 0


def test_a_stack_of_this_machine_is_one_of_its_own(memory_account: MemoryAccount, tmp_path: Path) -> None:
    write_stack(tmp_path / "sandbox.yaml")
    infra.up_infra(local=True)
    assert infra.infra_outputs() == {}
    assert infra.infra_outputs(local=True)["target"] == "local"
    assert infra.infra_list(local=False)["count"] == 0
    assert infra.infra_list(local=True)["count"] == infra.infra_list()["count"] == 1


def test_a_connector_is_refused_on_this_machine(memory_account: MemoryAccount, tmp_path: Path) -> None:
    write_stack(tmp_path / "sandbox.yaml", more=f"network: {{egress: {{connector_arn: '{CONNECTOR}'}}}}\n")
    with pytest.raises(errors.UsageError, match=r"network\.egress"):
        infra.preview_infra(local=True)


def test_remarks_of_the_file_are_among_the_notes(memory_account: MemoryAccount, tmp_path: Path) -> None:
    role = memory_account.iam.make("mine")
    policies = "[arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess]"
    write_stack(tmp_path / "sandbox.yaml")
    text = (
        (tmp_path / "sandbox.yaml")
        .read_text()
        .replace("role: {", f"role: {{arn: '{role}', extra_policy_arns: {policies}, ")
    )
    (tmp_path / "sandbox.yaml").write_text(text)
    assert "role.extra_policy_arns is not used" in str(only(infra.preview_infra())["notes"])


def test_a_missing_folder_is_told_only_where_it_is_needed(memory_account: MemoryAccount, tmp_path: Path) -> None:
    write_stack(tmp_path / "sandbox.yaml")
    infra.up_infra()
    (tmp_path / "small").rename(tmp_path / "moved")
    for verb in (infra.preview_infra, infra.up_infra):
        with pytest.raises(errors.ConfigurationError, match=r"sandbox.yaml:2: image.guest_dir does not exist"):
            verb()
    assert infra.infra_outputs()["project"] == "demo"
    infra.refresh_infra()
    infra.destroy_infra()
    assert infra.infra_list()["count"] == 0


def test_outputs_without_a_configuration_are_those_of_the_only_stack(
    memory_account: MemoryAccount, tmp_path: Path
) -> None:
    store = Store(str(tmp_path / "infra-state.json"))
    with pytest.raises(errors.ConfigurationError, match=r"there is no sandbox.yaml"):
        infra.infra_outputs()
    store.save(StackState("p", "prod", region="eu-west-1", outputs={"image_arn": "arn:x"}))
    assert infra.infra_outputs() == {
        "project": "p",
        "stack": "prod",
        "target": "aws",
        "region": "eu-west-1",
        "image_arn": "arn:x",
    }
    with pytest.raises(errors.ConfigurationError, match=r"there is no sandbox.yaml"):
        infra.infra_outputs(stack="prod")


def test_init_writes_a_file_for_the_region_that_is_configured(
    memory_account: MemoryAccount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert infra.init_infra() == {"file": "sandbox.yaml", "written": True}
    assert "\nregion: us-east-1\n" in (tmp_path / "sandbox.yaml").read_text()
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    infra.init_infra(file="other.yaml")
    assert "\nregion: eu-west-1\n" in (tmp_path / "other.yaml").read_text()
    infra.init_infra(file="other.yaml", force=True, region="ap-south-1")
    assert "\nregion: ap-south-1\n" in (tmp_path / "other.yaml").read_text()


VERBS = [
    *(infra.init_infra, infra.preview_infra, infra.up_infra, infra.refresh_infra, infra.plan_removal),
    *(infra.destroy_infra, infra.infra_outputs, infra.infra_list),
]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_every_argument_of_a_verb_is_described(verb: Any) -> None:
    import inspect

    described = inspect.getdoc(verb) or ""
    for parameter in inspect.signature(verb).parameters.values():
        assert parameter.kind is parameter.KEYWORD_ONLY
        assert f"\n    {parameter.name}: " in described
