"""Builds from the artifact to the image."""

from __future__ import annotations

import errno
import io
import os
import threading
from pathlib import Path

import pytest

from tests.support.artifacts import guest_files, make_zip
from tests.support.building import ARN, Builds, describe
from tests.support.lifecycle import eventually
from tests.support.machines import FakeDriver
from vmnest.local import build_artifact, builder, hooks
from vmnest.local.builder import BuildFailed

READY = {"port": 9000, "microvmImageHooks": {"ready": "ENABLED", "readyTimeoutInSeconds": 60}}
VALID = {
    "port": 9000,
    "microvmImageHooks": {**READY["microvmImageHooks"], "validate": "ENABLED", "validateTimeoutInSeconds": 60},  # type: ignore[dict-item]
}
# A server of hooks: each request is answered with the next status of that hook, and then with its last one.
SERVER = """\
import http.server, sys
STATUSES = {"ready": [%s], "validate": [%s]}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        name = self.path.rpartition("/")[2]
        some = STATUSES[name]
        status = some.pop(0) if len(some) > 1 else some[0]
        print(name, status, flush=True)
        self.send_response(status)
        self.end_headers()
    def log_message(self, *arguments):
        pass
http.server.HTTPServer(("", 9000), Handler).serve_forever()
"""
SERVING = 'FROM x\nCOPY server.py /opt/\nCMD ["python3", "/opt/server.py"]\n'


def server(*, ready: str = "200", validate: str = "200") -> dict[str, str]:
    return {"server.py": SERVER % (ready, validate)}


def test_our_own_guest_is_built_as_it_is(builds: Builds) -> None:
    files = guest_files()
    built = builds.build(files.pop("Dockerfile").decode(), files, hooks=VALID, environment={"EXTRA": "1"})
    config = built.config
    assert config.command == ("python3", "-m", "agentd.serve")
    assert config.environment["PYTHONPATH"] == "/opt/agentd"
    assert config.environment["EXTRA"] == "1"
    assert (config.workdir, config.exposed) == ("/work", ("8080/tcp", "9000/tcp"))
    assert config.hooks == hooks.Config(port=9000, ready=60, validate=60)
    assert built.sizes.code_install_bytes > 100_000
    assert any("listens on" in line for line in builds.lines)


def test_an_images_own_variables_come_before_those_of_its_file(builds: Builds) -> None:
    built = builds.build('FROM x\nENV A=1 B=2\nCMD ["sleep", "9"]', environment={"B": "3"})
    assert built.config.environment == {"A": "1", "B": "3"}


def test_two_builds_at_once_share_their_layers(builds: Builds) -> None:
    text = 'FROM x\nRUN echo once && sleep 0.2 && touch /opt/a\nCMD ["sleep", "9"]'
    said: list[str] = []
    built: list[builder.Built] = []
    threads = [
        threading.Thread(
            target=lambda: built.append(
                builds.builder.build(make_zip({"Dockerfile": text}), spec=describe(), log=said.append)
            )
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one.layers for one in built}) == 1
    assert said.count("  once") == 1
    assert len(built) == 3


class TestHooks:
    def test_an_image_that_is_not_ready_yet_is_asked_again(self, builds: Builds) -> None:
        builds.build(SERVING, server(ready="503, 503, 200", validate="503, 200"), hooks=VALID)
        said = [line.strip() for line in builds.lines if line.startswith("  ")]
        assert said == ["ready 503", "ready 503", "ready 200", "validate 503", "validate 200"]

    def test_a_hook_that_is_not_enabled_is_not_called(self, builds: Builds) -> None:
        builds.build(SERVING, server(validate="500"), hooks=READY)
        assert not any("validate" in line for line in builds.lines)

    @pytest.mark.parametrize(
        ("statuses", "reason"),
        [
            (
                {"ready": "404, 200"},
                "Ready hook check failed: the application returned a client error (HTTP 4xx) response",
            ),
            (
                {"ready": "500, 200"},
                "Ready hook check failed: the application returned a server error (HTTP 5xx) response",
            ),
            (
                {"validate": "400, 200"},
                "Validate hook check failed: the application returned a client error (HTTP 4xx) response",
            ),
        ],
    )
    def test_any_other_answer_fails_the_build_at_once(
        self, builds: Builds, statuses: dict[str, str], reason: str
    ) -> None:
        failed = builds.fail(SERVING, server(**statuses), hooks=VALID)
        assert (failed.code, failed.reason) == ("CONTAINER_BUILD_FAILED", reason)

    def test_one_that_never_is_ready_is_given_up(self, builds: Builds) -> None:
        enabled = {"microvmImageHooks": {"ready": "ENABLED", "readyTimeoutInSeconds": 1}}
        failed = builds.fail(SERVING, server(ready="503"), hooks=enabled)
        assert failed.reason == "Ready hook invocation timed out after PT1S"

    def test_a_main_process_that_ends_is_no_container(self, builds: Builds) -> None:
        failed = builds.fail('FROM x\nCMD ["/bin/sh", "-c", "echo bye; exit 5"]', hooks=READY)
        assert (failed.code, failed.reason) == ("CONTAINER_BUILD_FAILED", "Failed to start container")
        assert "  bye" in builds.lines
        assert any("exit code 5" in line for line in builds.lines)


def test_a_main_process_that_is_not_there_is_no_container(builds: Builds) -> None:
    assert builds.fail('FROM x\nCMD ["/no/such"]').reason == "Failed to start container"
    assert any("/no/such" in line and "No such file" in line for line in builds.lines)


def test_without_a_command_there_is_no_container(builds: Builds) -> None:
    reason = "Failed to start container: the Dockerfile has neither CMD nor ENTRYPOINT"
    assert builds.fail("FROM x\nLABEL a=b").reason == reason


def test_a_fault_in_the_last_line_is_told_before_the_first_one_is_run(builds: Builds) -> None:
    failed = builds.fail("FROM x\nRUN echo ran\nVOLUME /x\n")
    assert failed.reason == "The container image build failed. Line 3: the instruction VOLUME is not known here."
    assert builds.lines == [failed.reason]


class TestArchive:
    def build(self, builds: Builds, content: io.BytesIO) -> BuildFailed:
        with pytest.raises(BuildFailed) as caught:
            builds.builder.build(content, spec=describe(), log=builds.lines.append)
        return caught.value

    def test_no_zip(self, builds: Builds) -> None:
        failed = self.build(builds, io.BytesIO(b"x"))
        assert (failed.code, failed.reason) == ("ARCHIVE_INVALID", "ARCHIVE_INVALID: File is not a zip file.")

    @pytest.mark.parametrize("members", [{"sub/Dockerfile": "FROM x"}, {"Dockerfile/": ""}])
    def test_no_file_at_its_root(self, builds: Builds, members: dict[str, str]) -> None:
        assert self.build(builds, make_zip(members)).code == "ARCHIVE_DOCKERFILE_NOT_FOUND"

    def test_more_than_the_disk_holds(self, builds: Builds, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(builds.builder, "_disk_bytes", 1000)
        assert self.build(builds, make_zip({"Dockerfile": "FROM x", "a": bytes(2000)})).code == "DISK_STORAGE_FULL"

    def test_a_full_disk(self, builds: Builds, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*arguments: object, **options: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(build_artifact.os, "mkdir", fail)  # type: ignore[attr-defined]
        with pytest.raises(BuildFailed) as caught:
            builds.builder.build(make_zip({"a/b": ""}), spec=describe(), log=builds.lines.append)
        assert caught.value.code == "DISK_STORAGE_FULL"

    @pytest.mark.parametrize(("data", "line"), [(b"FROM x\nRUN \xff", 2), (b"#" * ((1 << 20) + 1), 1)])
    def test_a_file_that_cannot_be_read(self, builds: Builds, data: bytes, line: int) -> None:
        assert f"Line {line}: the file " in self.build(builds, make_zip({"Dockerfile": data})).reason


def test_a_build_ends_with_the_daemon(builds: Builds) -> None:
    caught: list[BuildFailed] = []
    thread = threading.Thread(target=lambda: caught.append(builds.fail("FROM x\nRUN echo here && sleep 1000\n")))
    thread.start()
    eventually(lambda: "  here" in builds.lines)
    builds.builder.close()
    thread.join()
    assert caught[0].code == "INTERNAL_PLATFORM_ERROR"
    assert caught[0].reason == "INTERNAL_PLATFORM_ERROR: the local cloud is ending."


def test_what_is_allowed_must_be_a_rule(cell_driver: object, tmp_path: Path) -> None:
    one = builder.Builder(cell_driver, str(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(BuildFailed) as caught:
        one.build(
            make_zip({"Dockerfile": "FROM x\nRUN sleep 5\nCMD x"}),
            spec=describe(egress_allow=("http://x",)),
            log=lambda line: None,
        )
    assert "not allowed to a sandbox as egress" in caught.value.reason


def test_where_nothing_can_be_kept_no_image_is_built(tmp_path: Path) -> None:
    driver = FakeDriver({})
    driver.obstacle_to_images = "there is no disk"
    said: list[str] = []
    with pytest.raises(BuildFailed) as caught:
        builder.Builder(driver, str(tmp_path)).build(make_zip({"Dockerfile": ""}), spec=describe(), log=said.append)
    assert caught.value.code == "INTERNAL_PLATFORM_ERROR"
    assert said == ["INTERNAL_PLATFORM_ERROR: images cannot be built on this machine: there is no disk"]


def test_what_a_killed_daemon_had_unpacked_is_removed(tmp_path: Path) -> None:
    left = tmp_path / "builds" / "x" / "context"
    left.mkdir(parents=True)
    left.chmod(0)
    maker = builder.Builder(FakeDriver({}), str(tmp_path))
    assert os.listdir(tmp_path / "builds") == []
    maker.sweep([])
    assert os.listdir(tmp_path / "layers") == []


def test_layers_that_no_image_needs_are_swept(builds: Builds) -> None:
    first = builds.build('FROM x\nRUN touch /opt/a\nCMD ["sleep", "9"]')
    second = builds.build('FROM x\nRUN touch /opt/b\nCMD ["sleep", "9"]')
    builds.builder.sweep(first.layers)  # what was made just now may be of use to the next build
    assert len(os.listdir(builds.folder / "layers")) == 2
    builds.builder.sweep(first.layers, kept_seconds=0)
    assert tuple(os.listdir(builds.folder / "layers")) == first.layers
    assert second.layers != first.layers


def test_a_vm_that_tries_the_image_out_knows_which_it_is(builds: Builds) -> None:
    builds.fail('FROM x\nCMD ["/bin/sh", "-c", "echo $AWS_LAMBDA_MICROVM_IMAGE_ARN; exit 1"]', hooks=READY)
    assert f"  {ARN}" in builds.lines
