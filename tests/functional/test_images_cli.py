"""``vmnest image`` against the local cloud, as a user types it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import PROGRAM, Cli, bare_environ
from tests.support.cloud import LocalCloud, open_cloud
from tests.support.paths import ROOT
from tests.support.terminals import Terminal

DOCKERFILE = 'FROM scratch\nENV WHO=image\nCOPY a /srv/a\nRUN echo made > /srv/b\nCMD ["sleep", "600"]\n'


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloud]:
    with open_cloud() as cloud:
        yield cloud


@pytest.fixture
def cli(cloud: LocalCloud, tmp_path: Path) -> Cli:
    environ = {**bare_environ(cloud.folder), "AGENT_SANDBOX_LOCAL_DIR": cloud.folder, "AGENT_SANDBOX_TARGET": "local"}
    return Cli(environ, cwd=tmp_path)


@pytest.fixture
def guest(tmp_path: Path) -> Path:
    """A copy of our own guest."""
    shutil.copytree(ROOT / "guest", tmp_path / "guest", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "guest"


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "Dockerfile").write_text(DOCKERFILE)
    (tmp_path / "plain" / "a").write_text("a")
    return tmp_path / "plain"


def build(cli: Cli, name: str, *words: str) -> str:
    done = cli("image", "build", *words, "--name", name)
    assert done.status == 0, done.remarks
    return done.text.strip()


def test_our_own_guest_is_built_run_and_removed(cli: Cli, guest: Path) -> None:
    arn = build(cli, "own")
    assert arn.endswith(":microvm-image:own")
    assert cli("create", "box", "-i", "own", "-q").status == 0
    try:
        done = cli("exec", "box", "--", "sh", "-c", "echo $AWS_LAMBDA_MICROVM_IMAGE_NAME; ls /opt/agentd/agentd")
        assert "own\n" in done.text
        assert "serve.py\n" in done.text
        refused = cli("image", "rm", "own")
        assert refused.status == 1
        assert "running microvms" in refused.remarks
        assert "vmnest rm" in refused.remarks
    finally:
        assert cli("rm", "box").status == 0
    assert cli("image", "rm", "own").text == "own\n"
    assert cli("image", "rm", "own").status == 3


def test_what_was_uploaded_for_an_image_of_this_machine_goes_with_it(cli: Cli, cloud: LocalCloud, plain: Path) -> None:
    content = os.urandom(3_000_000)  # nothing that a zip makes smaller
    (plain / "a").write_bytes(content)
    before = _size(Path(cloud.folder))
    build(cli, "large", str(plain))
    build(cli, "large-2", str(plain))
    assert _size(Path(cloud.folder)) - before > 2 * len(content)
    assert cli("image", "rm", "large").status == 0
    assert len(content) < _size(Path(cloud.folder)) - before < 2 * len(content)
    assert cli("image", "prune", "--yes").status == 0
    assert _size(Path(cloud.folder)) - before < len(content)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "account").rglob("*") if path.is_file())


def test_the_guest_of_the_package_is_taken_where_there_is_none(cli: Cli) -> None:
    done = cli("image", "build", "--name", "packaged")
    assert done.status == 0
    assert "guest does not exist: the guest that comes with vmnest is used" in done.remarks
    assert "this machine's own programs" in done.remarks


def test_json_is_one_object_and_nothing_else(cli: Cli, plain: Path) -> None:
    data = cli("image", "build", "plain", "-n", "machine", "--json").data
    assert (data["name"], data["image_version"], data["state"]) == ("machine", "1.0", "SUCCESSFUL")
    listed = cli("image", "ls", "--json").data["images"]
    assert data["image_arn"] in [each["image_arn"] for each in listed]
    shown = cli("image", "inspect", "machine", "--json").data
    assert shown["version"]["artifact"] == data["artifact"]
    versions = cli("image", "versions", "machine", "--json").data["versions"]
    assert [each["image_version"] for each in versions] == ["1.0"]
    lines = cli("image", "logs", "machine", "--json").data["lines"]
    assert any("COPY a /srv/a" in line["message"] for line in lines)


def test_a_second_build_is_a_second_version_and_one_can_go(cli: Cli, plain: Path) -> None:
    build(cli, "grows", "plain")
    (plain / "a").write_text("b")
    build(cli, "grows", "plain", "-m", "512", "-e", "KEY=value")
    table = cli("image", "versions", "grows").text.splitlines()
    assert [row.split()[0] for row in table] == ["VERSION", "2.0", "1.0"]
    assert "512 MiB" in table[1]
    assert cli("image", "rm", "grows", "--image-version", "1.0").status == 0
    assert len(cli("image", "versions", "grows").text.splitlines()) == 2
    last = cli("image", "rm", "grows", "--image-version", "2.0")
    assert last.status == 1
    assert "last version" in last.remarks


def test_a_failed_build_says_why_and_with_what_status(cli: Cli, plain: Path) -> None:
    (plain / "Dockerfile").write_text("FROM scratch\nRUN echo before; nonsense-program\n")
    done = cli("image", "build", "plain", "--name", "failing")
    assert (done.status, done.text) == (1, "")
    assert "Line 2" in done.remarks
    assert "before" in done.remarks
    assert "nonsense-program" in cli("image", "logs", "failing").text
    error = cli("image", "build", "plain", "--name", "failing", "--json").error
    assert error["code"] == "image_build_failed"
    assert [each["state"] for each in error["details"]["builds"]] == ["FAILED", "FAILED"]


def test_a_sandbox_that_does_not_start_shows_what_it_printed(cli: Cli, plain: Path) -> None:
    (plain / "Dockerfile").write_text("FROM scratch\nCMD seq 5000 5006; printf '\\033[31mred'; exit 3\n")
    build(cli, "dying", "plain")
    done = cli("create", "box", "--image", "dying")
    assert (done.status, done.text) == (1, "")
    assert "Exit Code: 3" in done.remarks
    assert done.remarks.endswith("It printed at last:\n    5003\n    5004\n    5005\n    5006\n    [31mred\n")
    error = cli("create", "box", "--image", "dying", "--json").error
    assert error["details"]["log"] == ["5003", "5004", "5005", "5006", "[31mred"]
    assert cli("ls").text == ""


@pytest.mark.parametrize("line", ["HEALTHCHECK NONE", "ONBUILD RUN x", "VOLUME /data", "NONSENSE"])
def test_an_instruction_that_is_not_known_fails_with_its_line(cli: Cli, plain: Path, line: str) -> None:
    (plain / "Dockerfile").write_text(f"FROM scratch\n\n# a comment\n{line}\n")
    done = cli("image", "build", "plain", "--name", "odd")
    assert done.status == 1
    assert "Line 4" in done.remarks
    assert line.split()[0] in done.remarks


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere", "--name", "x"), "nowhere does not exist"),
        (("plain",), "no name"),
        (("plain", "--name", "a b"), "no image can be named"),
        (("plain", "--name", "x", "-m", "3000"), "3000 MiB"),
        (("plain", "--name", "x", "-e", "AWS_REGION=x"), "AWS_REGION"),
        (("plain", "--name", "x", "--hooks", "--no-hooks"), "contradict"),
        (("plain", "--name", "x", "--wait", "--no-wait"), "contradict"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(cli: Cli, plain: Path, words: tuple[str, ...], said: str) -> None:
    done = cli("image", "build", *words)
    assert (done.status, done.text) == (2, "")
    assert said in done.remarks
    assert "Traceback" not in done.remarks


def test_prune_asks_and_removes_what_nothing_needs(cli: Cli, guest: Path, plain: Path) -> None:
    build(cli, "needed")
    build(cli, "unneeded", "plain")
    assert cli("create", "user", "-i", "needed", "-q").status == 0
    try:
        refused = cli("image", "prune")
        assert refused.status == 2
        assert "--yes" in refused.remarks
        shown = cli("image", "prune", "--dry-run", "--json").data["images"]
        assert "unneeded" in [each["name"] for each in shown]
        with Terminal([*PROGRAM, "image", "prune"], env={**cli.environ, "PYTHONPATH": str(ROOT)}) as terminal:
            terminal.read_until(b"[y/N]")
            terminal.type(b"n\n")
            assert terminal.wait() == 1
        assert cli("image", "inspect", "unneeded").status == 0
        done = cli("image", "prune", "--yes")
        assert done.status == 0
        assert "unneeded\n" in done.text
        assert cli("image", "inspect", "unneeded").status == 3
        assert cli("image", "inspect", "needed").status == 0
    finally:
        cli("rm", "user")


def test_an_interrupted_build_says_that_it_goes_on(cli: Cli, plain: Path) -> None:
    (plain / "Dockerfile").write_text('FROM scratch\nRUN sleep 3\nCMD ["sleep", "600"]\n')
    with Terminal(
        [*PROGRAM, "image", "build", str(plain), "--name", "slow"], env={**cli.environ, "PYTHONPATH": str(ROOT)}
    ) as terminal:
        terminal.read_until(b"building version 1.0")
        terminal.type(b"\x03")
        assert terminal.wait() == 130
        assert b"the build goes on without us" in terminal.seen + terminal.read_rest()
    assert "1.0" in cli("image", "versions", "slow").text
