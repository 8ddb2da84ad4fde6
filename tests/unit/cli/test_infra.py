"""``infra …``: what is made of results, and what is asked, over an account in memory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.memory_account import MemoryAccount
from tests.support.sandbox_yaml import write, write_stack
from tests.support.screens import on_terminal, read_until
from vmnest import errors
from vmnest.cli import failure, infra, terminal, verbs
from vmnest.cli.main import main
from vmnest.infra.state import StackState, Store

pytestmark = pytest.mark.usefixtures("memory_account")


@pytest.fixture
def stack(memory_account: MemoryAccount, tmp_path: Path) -> MemoryAccount:
    write_stack(tmp_path / "sandbox.yaml")
    return memory_account


def run(capfd: pytest.CaptureFixture[str], *words: str, status: int = 0) -> tuple[str, str]:
    assert main(["infra", *words]) == status
    captured = capfd.readouterr()
    return captured.out, captured.err


def data(capfd: pytest.CaptureFixture[str], *words: str) -> Any:
    out, err = run(capfd, *words, "--json")
    assert err == ""
    return json.loads(out)


def test_init_writes_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(capfd, "init") == ("", "vmnest: wrote sandbox.yaml; look it over, then: vmnest infra preview\n")
    _, err = run(capfd, "init", status=2)
    assert "sandbox.yaml is there already" in err
    assert data(capfd, "init", "--force", "-f", "other.yaml", "--region", "eu-west-1") == {
        "file": "other.yaml",
        "written": True,
    }
    assert "region: eu-west-1" in (tmp_path / "other.yaml").read_text()
    _, err = run(capfd, "init", "-f", "an other.yaml")
    assert err.endswith("then: vmnest infra preview -f 'an other.yaml'\n")


def test_a_preview_is_a_line_for_each_resource(stack: MemoryAccount, capfd: pytest.CaptureFixture[str]) -> None:
    out, err = run(capfd, "preview")
    head, *lines = out.splitlines()
    assert head == "demo/dev on AWS, us-east-1: 4 to create"
    assert [line.split()[:3] for line in lines] == [
        ["+", "create", name] for name in ("role", "bucket", "guest_object", "image")
    ]
    assert err == "vmnest: nothing was changed; this does it: vmnest infra up\n"
    assert [step["action"] for step in data(capfd, "preview")["stacks"][0]["steps"]] == ["create"] * 4
    _, err = run(capfd, "preview", "-f", "sandbox.yaml", "-s", "prod")
    assert err == "vmnest: nothing was changed; this does it: vmnest infra up -f sandbox.yaml -s prod\n"


def test_a_preview_shows_the_fields_that_differ(
    stack: MemoryAccount, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run(capfd, "up", "-q")
    out, err = run(capfd, "preview")
    assert out.startswith("demo/dev on AWS, us-east-1: 4 as they are\n")
    assert err == ""
    write(tmp_path / "small" / "program.py", "2\n")
    out, _ = run(capfd, "preview")
    assert "  ~ update   image" in out
    assert any(line.startswith("        ") and " -> " in line for line in out.splitlines())


def test_up_prints_the_outputs_and_remarks_what_it_does(
    stack: MemoryAccount, capfd: pytest.CaptureFixture[str]
) -> None:
    out, err = run(capfd, "up")
    outputs = json.loads(out)
    assert outputs["image_arn"].endswith(":microvm-image:demo-guest")
    assert err.startswith("4 to create\nrole: ")
    assert "image: made arn:" in err
    assert run(capfd, "output")[0] == out
    assert run(capfd, "output", "image_arn") == (f"{outputs['image_arn']}\n", "")
    assert run(capfd, "up", "-q") == (out, "")
    assert data(capfd, "up") == {"stacks": [outputs]}


def test_several_stacks_have_their_names_before_their_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for project in ("a", "b"):
        write_stack(tmp_path / f"{project}.yaml", project=project)
    out, err = run(capfd, "up", "-f", "a.yaml", "-f", "b.yaml", "-p", "1")
    assert [each["project"] for each in json.loads(out)["stacks"]] == ["a", "b"]
    assert "[b/dev] image: made arn:" in err
    out, _ = run(capfd, "destroy", "-f", ".", "--yes")
    assert out == "a/dev: removed 4\nb/dev: removed 4\n"


def test_refresh_tells_what_is_gone(stack: MemoryAccount, capfd: pytest.CaptureFixture[str]) -> None:
    run(capfd, "up", "-q")
    assert run(capfd, "refresh") == ("demo/dev: what is recorded is there\n", "")
    stack.images.known.clear()
    out, _ = run(capfd, "refresh")
    assert out.startswith("demo/dev: the record was changed\n  - delete  image")
    assert data(capfd, "refresh")["stacks"][0]["changes"] == []


def test_refresh_does_not_say_that_something_is_there_where_nothing_is_recorded(
    stack: MemoryAccount, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(capfd, "refresh") == ("demo/dev: nothing is recorded\n", "")
    (told,) = data(capfd, "refresh")["stacks"]
    assert (told["recorded"], told["changes"], told["outputs"]) == (False, [], {})
    run(capfd, "up", "-q")
    assert data(capfd, "refresh")["stacks"][0]["recorded"] is True


def test_without_a_terminal_destroy_wants_to_be_told_that_it_is_meant(
    stack: MemoryAccount, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(capfd, "destroy") == ("demo/dev: removed 0\n", "nothing to do\n")
    run(capfd, "up", "-q")
    before = stack.inventory()
    out, err = run(capfd, "destroy", status=2)
    assert out == ""
    assert err == (
        "vmnest: this would remove the infrastructure of demo/dev\n  If you mean it: --yes. On a terminal, it asks.\n"
    )
    assert stack.inventory() == before
    run(capfd, "destroy", "--json", status=2)
    out, err = run(capfd, "destroy", "-y")
    assert out == "demo/dev: removed 4\n"
    assert "role: removed demo-exec\n" in err


@pytest.mark.parametrize(("answer", "status"), [(b"y\n", 0), (b"YES\n", 0), (b"\n", 1), (b"n\n", 1), (b"\x04", 1)])
def test_on_a_terminal_destroy_asks(
    stack: MemoryAccount, capfd: pytest.CaptureFixture[str], answer: bytes, status: int
) -> None:
    run(capfd, "up", "-q")
    before = stack.inventory()
    with on_terminal(terminal.STDIN) as keys, on_terminal(terminal.STDERR) as screen:
        os.write(keys, answer)
        assert main(["infra", "destroy"]) == status
        shown = read_until(screen, b"nothing was removed" if status else b"role: removed demo-exec").decode()
    assert shown.startswith("demo/dev on AWS, us-east-1: 4 to remove\n  - delete  image")
    assert "\nRemove this? [y/N] " in shown
    assert (stack.inventory() == before) is (status == 1)


def test_what_was_there_before_is_left(stack: MemoryAccount, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stack.s3.make("theirs")
    write_stack(tmp_path / "sandbox.yaml", more="bucket: {name: theirs}\n")
    run(capfd, "up", "-q")
    assert "= reuse    bucket" in run(capfd, "preview")[0]
    out, err = run(capfd, "destroy", "--yes")
    assert out == "demo/dev: removed 3, left 1 that were there before\n"
    assert "bucket: " in err
    assert "theirs" in str(stack.inventory())


NOTHING_UP = (
    "vmnest: there is no output image_arn\n"
    "  Nothing is up on AWS (--local: on this machine). This makes it: vmnest infra up\n"
)


def test_outputs_are_bare_values_or_json(
    memory_account: MemoryAccount, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_stack(tmp_path / "sandbox.yaml")
    nothing = "vmnest: nothing is up on AWS (--local: on this machine). This makes it: vmnest infra up"
    assert run(capfd, "output") == ("{}\n", f"{nothing}\n")
    assert data(capfd, "output") == {}
    out, err = run(capfd, "output", "image_arn", status=3)
    assert (out, err) == ("", NOTHING_UP)
    here = run(capfd, "--local", "output", "image_arn", status=3)[1]
    assert here.endswith("  Nothing is up on this machine. This makes it: vmnest --local infra up\n")
    long = "arn:" + "x" * 300
    outputs: dict[str, str | list[str]] = {"image_arn": long, "subnet_ids": ["subnet-1", "subnet-2"]}
    Store(str(tmp_path / "infra-state.json")).save(StackState("demo", "dev", region="eu-west-1", outputs=outputs))
    assert run(capfd, "output", "image_arn") == (f"{long}\n", "")
    assert run(capfd, "output", "subnet_ids") == ('["subnet-1", "subnet-2"]\n', "")
    assert run(capfd, "output", "project") == ("demo\n", "")
    assert data(capfd, "output", "stack") == {"name": "stack", "value": "dev"}
    _, err = run(capfd, "output", "nothing", status=3)
    assert "There are project, stack, target, region, image_arn, subnet_ids." in err
    labelled = {"project": "demo", "stack": "dev", "target": "aws", "region": "eu-west-1", **outputs}
    assert json.loads(run(capfd, "output")[0]) == data(capfd, "output") == labelled
    assert json.loads(run(capfd, "output", "--all")[0]) == {"stacks": [labelled], "count": 1}
    assert data(capfd, "output", "--all", "--local") == {"stacks": [], "count": 0}
    assert run(capfd, "output", "-s", "prod") == ("{}\n", f"{nothing} -s prod\n")
    assert "no NAME goes with it" in run(capfd, "output", "--all", "image_arn", status=2)[1]


def test_a_stack_of_the_other_target_is_told_of_where_none_is_here(
    memory_account: MemoryAccount, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_stack(tmp_path / "sandbox.yaml")
    here = StackState("demo", "dev", target="local", outputs={"image_arn": "arn:x"})
    Store(str(tmp_path / "infra-state.json")).save(here)
    for verb, words in (("output", ()), ("refresh", ()), ("destroy", ("--yes",))):
        _, err = run(capfd, verb, *words)
        assert f"vmnest: demo/dev is on this machine: vmnest --local infra {verb}\n" in err
    assert "is on" not in run(capfd, "--local", "output")[1]


def test_a_failure_names_the_reason_once_and_the_rest_is_done(
    tmp_path: Path, memory_account: MemoryAccount, capfd: pytest.CaptureFixture[str]
) -> None:
    write_stack(tmp_path / "a.yaml", project="a")
    write_stack(tmp_path / "b.yaml", project="b", more="bucket: {name: nowhere}\n")
    out, err = run(capfd, "up", "-f", "a.yaml", "-f", "b.yaml", status=1)
    assert out == ""
    assert "vmnest: 1 of 2 stacks failed: b/dev: " in err
    assert run(capfd, "output", "-f", "a.yaml", "project")[0] == "a\n"
    main(["infra", "up", "-f", "b.yaml", "--json"])
    captured = capfd.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err)["error"]["code"] == "infrastructure"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["up", "-p", "-1"], "--parallelism: must be a number of stacks, or 0"),
        (["up", "-p", "x"], "--parallelism: must be a number of stacks, or 0"),
        (["up", "--timeout", "0"], "--timeout: must be a number of seconds above 0"),
        (["output", "a", "b"], "There is one name too many"),
        (["preview", "x"], "There is one name too many"),
        (["up", "-f", "none.yaml"], "cannot read none.yaml: No such file"),
        (["up", "-s", "a/b"], "no name for a stack: 'a/b'"),
        (["up"], "there is no sandbox.yaml in"),
        (["plan"], "Did you mean vmnest infra preview?"),
        (["apply"], "Did you mean vmnest infra up?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_meant_is_refused(words: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert message in run(capfd, *words, status=2)[1]


def test_who_stops_it_is_told_that_nothing_is_lost(
    stack: MemoryAccount, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupt(service: str, operation: str, is_done: bool) -> None:
        if operation == "CreateMicrovmImage" and is_done:
            raise failure.Ended(2)

    stack.on_call = interrupt
    out, err = run(capfd, "up", status=130)
    assert out == ""
    assert "vmnest: stopped; what was done by then is recorded. The same command goes on from there" in err
    recorded = Store(str(tmp_path / "infra-state.json")).load("demo/dev")
    assert recorded is not None
    assert set(recorded.resources) >= {"role", "bucket", "guest_object"}
    stack.on_call = lambda service, operation, is_done: None
    out, err = run(capfd, "up")
    assert json.loads(out)["image_version"] == "1.0"
    assert "role: made" not in err
    run(capfd, "destroy", "--yes")


def test_a_failing_stack_is_not_taken_for_a_stop(stack: MemoryAccount, capfd: pytest.CaptureFixture[str]) -> None:
    def fail(service: str, operation: str, is_done: bool) -> None:
        if operation == "CreateMicrovmImage":
            raise errors.AccessDeniedError("no", operation=operation, status=403)

    stack.on_call = fail
    _, err = run(capfd, "up", status=1)
    assert "stopped" not in err
    assert "image: failed\n" in err


def test_the_options_that_upstream_has_are_known() -> None:
    for action, flags in {
        "init": ("-f", "--file", "--force"),
        "preview": ("-f", "-s"),
        "up": ("-f", "--file", "-s", "--stack", "--rebuild", "-p", "--parallelism"),
        "refresh": ("-f", "-s"),
        "destroy": ("-f", "-s"),
        "output": ("-f", "-s", "--all"),
    }.items():
        verb = verbs.find(("infra", action))
        assert verb is not None
        parser = infra.build_parser(verb)
        assert all(parser.is_known(flag) for flag in flags)
