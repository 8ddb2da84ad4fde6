"""What a build is made of, from whichever source says it; and what becomes of it, with a cloud on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cloud import LocalCloud, open_cloud
from vmnest import errors
from vmnest.ops import builds, image_wishes, images, infra
from vmnest.ops.builds import Wish

DOCKERFILE = 'FROM scratch\nCOPY a /srv/a\nCMD ["sleep", "600"]\n'


class Watcher:
    """Keeps what a build tells of itself."""

    def __init__(self) -> None:
        self.remarks: list[str] = []
        self.uploads: list[tuple[int, int]] = []
        self.states: list[str] = []

    def on_remark(self, text: str) -> None:
        self.remarks.append(text)

    def on_upload(self, done: int, total: int) -> None:
        self.uploads.append((done, total))

    def on_state(self, text: str) -> None:
        self.states.append(text)


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloud]:
    with open_cloud() as cloud:
        yield cloud


@pytest.fixture
def here(cloud: LocalCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a guest in it, where the cloud of this machine is meant."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_DIR", cloud.folder)
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "state.json"))
    monkeypatch.setenv("AGENT_SANDBOX_INFRA_STATE", str(tmp_path / "infra.json"))
    monkeypatch.setenv("AGENT_SANDBOX_TARGET", "local")
    (tmp_path / "guest").mkdir()
    (tmp_path / "guest" / "Dockerfile").write_text(DOCKERFILE)
    (tmp_path / "guest" / "a").write_text("a")
    return tmp_path


def version_of(name: str) -> dict[str, object]:
    found = images.image_inspect(image=name)["version"]
    assert isinstance(found, dict)
    return found


def test_a_directory_becomes_an_image(here: Path):
    watcher = Watcher()
    made = builds.build_image(wish=Wish(name="plain", memory=512, environment={"KEY": "v"}), front=watcher)
    assert (made["name"], made["image_version"], made["state"]) == ("plain", "1.0", "SUCCESSFUL")
    shown = version_of("plain")
    assert (shown["memory"], shown["variables"]) == (512, ["KEY"])
    assert (
        shown["artifact"] == made["artifact"] == f"s3://{image_wishes.LOCAL_BUCKET}/vmnest/plain/{made['digest']}.zip"
    )
    own_programs, no_agent = watcher.remarks
    assert own_programs == "whatever FROM names, the image is built on this machine's own programs"
    assert "vmnest image init" in no_agent
    assert watcher.states[0] == "building version 1.0"
    assert watcher.states[-1] == "version 1.0 is SUCCESSFUL"
    assert watcher.uploads[-1][0] == watcher.uploads[-1][1]


def test_a_demand_that_this_machine_does_not_meet_holds_for_what_a_build_runs_too(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_ISOLATION", "vm")
    with pytest.raises(errors.IsolationUnavailableError, match="demands vm"):
        builds.build_image(wish=Wish(name="weak"))
    (here / "sandbox.yaml").write_text("project: demo\nimage: {guest_dir: guest}\n")
    with pytest.raises(errors.IsolationUnavailableError, match="demands vm"):
        infra.up_infra(files=[str(here / "sandbox.yaml")])


def test_the_same_name_is_a_new_version_and_nothing_is_kept_of_the_old(here: Path):
    builds.build_image(wish=Wish(name="twice", memory=512, environment={"KEY": "v"}))
    watcher = Watcher()
    made = builds.build_image(wish=Wish(name="twice"), front=watcher)
    assert made["image_version"] == "2.0"
    assert watcher.uploads == []  # the content is there already
    shown = version_of("twice")
    assert (shown["memory"], shown["variables"]) == (2048, [])


def test_hooks_are_on_if_the_agent_is_there_or_if_that_is_said(here: Path):
    builds.build_image(wish=Wish(name="bare"))
    assert version_of("bare")["hooks"] == {}
    made = builds.build_image(directory=str(Path(builds.__file__).parents[2] / "guest"), wish=Wish(name="agent"))
    assert made["state"] == "SUCCESSFUL"
    hooks = version_of("agent")["hooks"]
    assert isinstance(hooks, dict)
    assert hooks["port"] == 9000
    (here / "guest" / "Dockerfile").write_text("FROM scratch\nRUN exit 3\n")  # so that nobody waits for their answers
    with pytest.raises(errors.ImageBuildError):
        builds.build_image(wish=Wish(name="hooked", hooks=True))
    log = images.image_inspect(image="hooked", image_version="1.0")["version"]
    assert isinstance(log, dict)
    assert log["hooks"]["port"] == 9000


def test_a_directory_to_begin_with_is_written_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.GuestImageError, match="guest is there already"):
        builds.init_image()
    made = builds.init_image(directory="mine")
    assert made["directory"] == "mine"
    assert "agentd/serve.py" in made["files"]  # type: ignore[operator]
    assert (here / "mine" / "Dockerfile").is_file()


def test_that_the_agent_is_not_in_the_directory_is_told(here: Path) -> None:
    watcher = Watcher()
    builds.build_image(wish=Wish(name="bare"), front=watcher)
    (told,) = (remark for remark in watcher.remarks if "vmnest image init" in remark)
    assert "run no commands" in told
    (here / "guest" / "agentd").mkdir()
    (here / "guest" / "agentd" / "serve.py").write_text("")
    watcher = Watcher()
    builds.build_image(wish=Wish(name="bare", hooks=False), front=watcher)
    assert not [remark for remark in watcher.remarks if "vmnest image init" in remark]


def test_without_waiting_the_build_goes_on(here: Path):
    made = builds.build_image(wish=Wish(name="patient"), wait=False)
    assert made["state"] == "CREATING"
    from vmnest.control import building
    from vmnest.control.images import Draft
    from vmnest.deadline import Deadline
    from vmnest.target import resolve

    deadline = Deadline(60)
    draft = Draft(str(made["image_arn"]), str(made["image_version"]), str(made["state"]))
    assert building.wait(resolve().control(deadline=deadline).images, draft, deadline=deadline).runnable


def test_a_failed_build_tells_its_reason_and_the_end_of_its_log(here: Path):
    (here / "guest" / "Dockerfile").write_text("FROM scratch\nRUN echo working; exit 3\n")
    watcher = Watcher()
    with pytest.raises(errors.ImageBuildError, match="Line 2") as caught:
        builds.build_image(wish=Wish(name="broken"), front=watcher)
    assert "working" in "\n".join(watcher.remarks)
    assert any("working" in line for line in caught.value.details["log"])
    # What the error says is not said before it, too.
    assert not [remark for remark in watcher.remarks if "exit code 3" in remark]
    assert caught.value.hint == "All of its log: vmnest --local image logs broken"
    log = builds.read_build_log(image="broken")
    assert (log["image_version"], log["state"]) == ("1.0", "FAILED")
    assert any("working" in each["message"] for each in log["lines"])  # type: ignore[attr-defined]


@pytest.mark.parametrize("image", ["local", "al2023-1", "arn:aws:lambda:us-east-1:aws:microvm-image:al2023-1"])
def test_an_image_that_nobody_built_has_no_log_of_a_build(here: Path, image: str) -> None:
    with pytest.raises(errors.UnsupportedError, match="was never built") as caught:
        builds.read_build_log(image=image)
    assert caught.value.hint == "What a sandbox has printed: vmnest logs NAME"


def test_a_name_that_no_image_has_is_not_found_whoever_builds(here: Path) -> None:
    with pytest.raises(errors.ImageNotFoundError, match="al2023"):
        builds.read_build_log(image="al2023")


def test_what_run_steps_may_reach_is_passed_on(here: Path):
    (here / "guest" / "Dockerfile").write_text("FROM scratch\nRUN env | grep -i -c proxy || true\nCMD sleep 600\n")
    builds.build_image(wish=Wish(name="closed", egress_allow=[]))
    builds.build_image(wish=Wish(name="open", egress_allow=["internet"]))
    counts = []
    for name in ("closed", "open"):
        lines = builds.read_build_log(image=name)["lines"]
        assert isinstance(lines, list)
        counts.append([line["message"].strip() for line in lines if line["message"].strip().isdigit()])
    assert counts[0] == ["0"]
    assert counts[1] != ["0"]


def test_the_directory_of_a_build_is_told_before_it_is_read(here: Path) -> None:
    assert builds.find_source(wish=Wish(name="a")).path == str(here / "guest")
    (here / "other").mkdir()
    (here / "other" / "Dockerfile").write_text(DOCKERFILE)
    assert builds.find_source(directory="other", wish=Wish(name="a")).path == str(here / "other")
    (here / "sandbox.yaml").write_text("image: {name: b, guest_dir: other}\n")
    assert builds.find_source().path == str(here / "other")
    with pytest.raises(errors.GuestImageError, match="does not exist"):
        builds.find_source(directory="none")
