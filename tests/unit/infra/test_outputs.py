"""Which stack's outputs count for whoever starts a sandbox."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.sandbox_yaml import write
from vmnest import errors
from vmnest.infra import outputs
from vmnest.infra.state import StackState, Store

IMAGE = "arn:aws:lambda:eu-west-1:123456789012:microvm-image:guest"


@pytest.fixture
def environ(tmp_path: Path) -> Mapping[str, str]:
    return {"AGENT_SANDBOX_INFRA_STATE": str(tmp_path / "infra-state.json")}


@pytest.fixture
def store(environ: Mapping[str, str]) -> Store:
    return Store(environ["AGENT_SANDBOX_INFRA_STATE"])


def image(environ: Mapping[str, str], cwd: Path, *, is_local: bool = False) -> tuple[str, str] | None:
    return outputs.resolve(outputs.IMAGE, is_local=is_local, environ=environ, cwd=str(cwd))


def record(store: Store, label: str, value: str = IMAGE, *, target: str = "aws") -> None:
    project, _, stack = label.partition("/")
    store.save(StackState(project, stack, target=target, region="eu-west-1", outputs={"image_arn": value}))


def test_nothing_is_recorded_so_nothing_is_found(environ: Mapping[str, str], tmp_path: Path) -> None:
    write(tmp_path / "sandbox.yaml", "this: is not even read")
    assert image(environ, tmp_path) is None


def test_the_stack_that_sandbox_yaml_names_counts(environ: Mapping[str, str], store: Store, tmp_path: Path) -> None:
    record(store, "a/dev", "other")
    record(store, "b/prod")
    write(tmp_path / "sandbox.yaml", "project: b\nstack: prod\n")
    found = image(environ, tmp_path)
    assert found == (IMAGE, "output of b/prod")
    assert outputs.resolve("region", is_local=False, environ=environ, cwd=str(tmp_path)) == (
        "eu-west-1",
        "output of b/prod",
    )
    assert outputs.resolve(outputs.EXECUTION_ROLE, is_local=False, environ=environ, cwd=str(tmp_path)) is None


def test_the_file_that_the_environment_names_counts(environ: Mapping[str, str], store: Store, tmp_path: Path) -> None:
    record(store, "a/dev", "other")
    record(store, "b/dev")
    write(tmp_path / "elsewhere" / "b.yaml", "project: b\n")
    environ = {**environ, "AGENT_SANDBOX_SETUP": str(tmp_path / "elsewhere" / "b.yaml")}
    assert image(environ, tmp_path) == (IMAGE, "output of b/dev")


def test_a_stack_that_is_not_up_offers_nothing_not_even_anothers(
    environ: Mapping[str, str], store: Store, tmp_path: Path
) -> None:
    record(store, "a/dev")
    write(tmp_path / "sandbox.yaml", "project: b\n")
    assert image(environ, tmp_path) is None


def test_without_a_file_the_only_stack_counts(environ: Mapping[str, str], store: Store, tmp_path: Path) -> None:
    record(store, "a/dev")
    store.save(StackState("gone", "dev"))  # no outputs
    assert image(environ, tmp_path / "none") == (IMAGE, "output of a/dev")
    record(store, "b/dev")
    assert image(environ, tmp_path / "none") is None


def test_a_stack_of_one_target_is_never_taken_for_the_other(
    environ: Mapping[str, str], store: Store, tmp_path: Path
) -> None:
    record(store, "a/dev", "here", target="local")
    assert image(environ, tmp_path) is None
    assert image(environ, tmp_path, is_local=True) == ("here", "output of a/dev")
    record(store, "b/dev", "there")
    write(tmp_path / "sandbox.yaml", "project: a\n")
    assert image(environ, tmp_path) is None
    write(tmp_path / "sandbox.yaml", "project: b\n")
    assert image(environ, tmp_path, is_local=True) is None
    assert image(environ, tmp_path) == ("there", "output of b/dev")


def test_of_several_stacks_in_a_file_the_one_that_is_up_counts(
    environ: Mapping[str, str], store: Store, tmp_path: Path
) -> None:
    write(tmp_path / "sandbox.yaml", "project: a\n---\nproject: b\n")
    record(store, "b/dev")
    assert image(environ, tmp_path) == (IMAGE, "output of b/dev")
    record(store, "a/dev")
    with pytest.raises(
        errors.ConfigurationError, match=r"sandbox.yaml names several stacks with the output image_arn: b"
    ):
        image(environ, tmp_path)
    with pytest.raises(errors.ConfigurationError, match="several stacks with outputs"):
        outputs.find_stack(is_local=False, environ=environ, cwd=str(tmp_path))
    assert outputs.resolve(outputs.EXECUTION_ROLE, is_local=False, environ=environ, cwd=str(tmp_path)) is None


def test_a_file_that_cannot_be_used_is_an_error(environ: Mapping[str, str], store: Store, tmp_path: Path) -> None:
    record(store, "a/dev")
    write(tmp_path / "sandbox.yaml", "projekt: a\n")
    with pytest.raises(errors.ConfigurationError, match="there is no key projekt"):
        image(environ, tmp_path)


WATCH = """
import sys
from vmnest.infra import outputs

print(outputs.resolve("image_arn", is_local=False, environ={"AGENT_SANDBOX_INFRA_STATE": sys.argv[1]}, cwd=sys.argv[2]))
print("yaml" in sys.modules)
"""


@pytest.mark.parametrize(("label", "is_read"), [("a/dev", True), (None, False)], ids=["recorded", "not recorded"])
def test_yaml_is_loaded_only_if_a_file_may_name_a_recorded_stack(
    store: Store, tmp_path: Path, label: str | None, is_read: bool
) -> None:
    if label:
        record(store, label)
    for has_file in (False, True):
        if has_file:
            write(tmp_path / "sandbox.yaml", "project: a\n")
        command = [sys.executable, "-c", WATCH, store.path, str(tmp_path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == str(is_read and has_file)
        assert (IMAGE in done.stdout) is is_read
