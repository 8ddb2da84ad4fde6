"""Stages and global arguments."""

from __future__ import annotations

import pytest

from vmnest.local import dockerfile, dockerfile_stages


def plan(text: str, *, machine: str = "x86_64") -> dockerfile_stages.Plan:
    return dockerfile_stages.plan(dockerfile.parse(text), machine=machine)


def refuse(text: str) -> tuple[int, str]:
    with pytest.raises(dockerfile.DockerfileError) as caught:
        plan(text)
    return caught.value.line, caught.value.message


def test_every_from_begins_a_stage() -> None:
    first, second, third = plan("FROM a AS one\nRUN x\nFROM b\nFROM ONE as three\nRUN y\nRUN z").stages
    assert [first.base, second.base, third.base] == ["a", "b", "ONE"]
    assert [first.name, second.name, third.name] == ["one", "", "three"]
    assert [first.parent, second.parent, third.parent] == [None, None, first]
    assert [len(stage.instructions) for stage in (first, second, third)] == [1, 0, 2]
    assert [first.line, second.line, third.line] == [1, 3, 4]


def test_there_are_so_many_stages_and_no_more() -> None:
    assert len(plan("FROM x\n" * dockerfile_stages.MAX_STAGES).stages) == dockerfile_stages.MAX_STAGES
    assert refuse("FROM x\n" * 201) == (201, "there are more than 200 stages")


@pytest.mark.parametrize(
    "arguments",
    [
        "\n".join(f"ARG a{number}" + "=x" for number in range(1001)),
        "ARG " + " ".join(f"a{number}=x" for number in range(1001)),
        "ARG a=" + "x" * 100_000 + "\n" + "\n".join(f"ARG a{number}=$a" for number in range(20)),
    ],
)
def test_there_are_so_many_global_arguments_and_no_more(arguments: str) -> None:
    assert "more than 1000 variables" in refuse(f"{arguments}\nFROM x")[1]


def test_stages_are_found_by_name_and_number() -> None:
    found = plan("FROM a AS one\nFROM b AS two")
    assert [found.find("two"), found.find("TWO"), found.find("1")] == [found.stages[1]] * 3
    assert found.find("three") is None
    assert found.find("") is None


def test_global_arguments_name_images() -> None:
    found = plan("ARG V=3.12\nARG TAG=$V-slim NOTHING\nFROM python:${TAG}${NOTHING:-x}")
    assert found.stages[0].base == "python:3.12-slimx"
    assert found.arguments["TAG"] == "3.12-slim"
    assert "NOTHING" not in found.arguments


@pytest.mark.parametrize(("machine", "platform"), [("x86_64", "linux/amd64"), ("aarch64", "linux/arm64")])
def test_the_platform_is_among_them(machine: str, platform: str) -> None:
    found = plan("FROM --platform=$BUILDPLATFORM a-$TARGETARCH", machine=machine)
    assert found.arguments["TARGETPLATFORM"] == platform
    assert found.stages[0].base == "a-" + platform.partition("/")[2]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("RUN x", 1, "RUN stands before the first FROM"),
        ("ARG X", 1, "there is no FROM in the file"),
        ("ARG X\nFROM $X", 2, "FROM names nothing: $X is empty"),
        ("FROM a b", 1, "FROM takes an image, and then AS and a name if there is one"),
        ("FROM a AS", 1, "FROM takes an image, and then AS and a name if there is one"),
        ("FROM a AS x\nFROM b AS X", 2, "there is a stage called X already"),
        ("ARG =x\nFROM a", 1, "ARG needs a name before the = in '=x'"),
        ("FROM ${x", 1, "the variable x is used in a way that is not known, in '${x'"),
        ("ARG a='b\nFROM x", 1, "the quote ' is not closed"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_line(text: str, line: int, message: str) -> None:
    assert refuse(text) == (line, message)
