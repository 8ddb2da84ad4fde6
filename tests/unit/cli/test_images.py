"""``image ...``: what is made of options and results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.control import summary
from tests.support.peers import Peer, Serve, Step, json_answer
from tests.unit.control.test_images import image, missing, version
from tests.unit.ops.test_images import arn, deleting, page, refused
from vmnest.cli.main import main

Start = Callable[..., Peer]


@pytest.fixture
def start(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts the service, with its script."""
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "AGENT_SANDBOX_STATE": str(tmp_path / "state.json"),
        "AGENT_SANDBOX_INFRA_STATE": str(tmp_path / "infra.json"),
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)

    def begin(*script: Step) -> Peer:
        peer = serve(*script)
        monkeypatch.setenv("AWS_ENDPOINT_URL", peer.url)
        return peer

    return begin


def test_the_table_of_ls(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    start(page(image("b", latestFailedImageVersion="3.0"), image("a", latestActiveImageVersion=None, createdAt=0.0)))
    assert main(["image", "ls"]) == 0
    heads, first, second = (line.split() for line in capfd.readouterr().out.splitlines())
    assert heads == ["NAME", "STATE", "ACTIVE", "FAILED", "AGE", "ARN"]
    assert (first[:4], first[5]) == (["a", "CREATED", "-", "-"], arn("a"))
    assert second[:4] == ["b", "CREATED", "2.0", "3.0"]


def test_no_images_is_said_beside_the_result(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    start(page(), page())
    assert main(["image", "ls"]) == 0
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "vmnest: there are no images\n")
    assert main(["image", "ls", "--json"]) == 0
    captured = capfd.readouterr()
    assert (json.loads(captured.out), captured.err) == ({"images": []}, "")


def test_the_services_own_images(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    base = "arn:aws:lambda:us-east-1:aws:microvm-image:al2023-1"
    stamp = {"createdAt": 1789463942.026, "updatedAt": 1789463942.026}
    start(
        page({"imageArn": base, **stamp}),
        page(*[{"imageArn": base, "imageVersion": number, "status": "AVAILABLE", **stamp} for number in "10"]),
    )
    assert main(["image", "ls", "--managed"]) == 0
    assert capfd.readouterr().out.splitlines()[1].split() == ["al2023-1", "1,", "0", base]


def test_reasons_and_sizes_in_the_table_of_versions(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    failed = version("2.0", state="FAILED", status="INACTIVE", stateReason="One or more\x1b[2J builds", resources=None)
    start(page(version("1.0"), failed))
    assert main(["image", "versions", arn("demo")]) == 0
    _, second, first = capfd.readouterr().out.splitlines()
    assert "FAILED" in second
    assert "One or more\\x1b[2J builds" in second
    assert "2048 MiB" in first


def test_several_are_removed_and_told_one_by_one(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    start(deleting(), missing(), refused(), page(summary("microvm-1", imageArn=arn("b"))))
    assert main(["image", "rm", arn("a"), arn("b")]) == 1
    captured = capfd.readouterr()
    assert captured.out == f"{arn('a')}\n"
    assert "microvm-1" in captured.err


def test_one_that_cannot_be_removed_keeps_none_of_the_others(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    script = [deleting(), missing(), page(), deleting(), missing()]
    start(*script)
    assert main(["image", "rm", arn("a"), "nope", arn("b")]) == 3
    captured = capfd.readouterr()
    assert captured.out == f"{arn('a')}\n{arn('b')}\n"
    assert "'nope'" in captured.err
    start(*script)
    assert main(["image", "rm", arn("a"), "nope", arn("b"), "--json"]) == 3
    captured = capfd.readouterr()
    assert captured.out == ""
    told = json.loads(captured.err)["error"]["details"]["images"]
    assert [each["image_arn"] for each in told] == [arn("a"), arn("b")]


def test_removal_without_waiting(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    peer = start(deleting())
    assert main(["image", "rm", arn("a"), "--no-wait", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["images"][0]["image_arn"] == arn("a")
    assert len(peer.requests) == 1


def test_nothing_to_prune_needs_no_answer(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    start(page(), page())
    assert main(["image", "prune"]) == 0
    assert "nothing to remove" in capfd.readouterr().err


def test_prune_tells_what_is_still_there(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    looks = [page(), page(image("a"), image("b")), *[json_answer(200, image(name)) for name in "ab"]]
    start(*looks, *looks, refused(), page(), looks[2], deleting(), missing())
    assert main(["image", "prune", "--yes"]) == 1
    captured = capfd.readouterr()
    assert captured.out == "b\n"
    assert "a is still there" in captured.err


def test_a_directory_to_begin_with_leads_to_its_build(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "mine"
    assert main(["image", "init", str(place)]) == 0
    assert capfd.readouterr() == (
        f"{place}\n",
        f"vmnest: change its Dockerfile as you like, then: vmnest image build {place} -n NAME\n",
    )
    assert main(["image", "init", str(place), "--json"]) == 2
    out, err = capfd.readouterr()
    assert (out, json.loads(err)["error"]["code"]) == ("", "guest_image")


def test_a_log_that_steers_the_terminal_is_escaped(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    event = {"timestamp": 1800000000000, "logStreamName": "s", "message": "one\x1b[2J\ntwo\n"}
    start(page(version("1.0")), json_answer(200, version("1.0")), json_answer(200, {"events": [event]}))
    assert main(["image", "logs", arn("demo")]) == 0
    assert capfd.readouterr().out == "one\\x1b[2J\ntwo\n"


def test_an_empty_log_says_where_it_was_looked_for(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    start(page(version("1.0")), json_answer(200, version("1.0")), json_answer(200, {"events": []}))
    assert main(["image", "logs", arn("demo")]) == 0
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "/aws/lambda-microvms/demo" in captured.err


@pytest.mark.parametrize("action", ["inspect", "versions", "logs", "rm"])
def test_the_image_must_be_named(action: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["image", action]) == 2
    assert "vmnest image ls" in capfd.readouterr().err
