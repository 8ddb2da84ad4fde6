"""``cp``: what a command line means. What it does is a matter of ``tests/functional/test_cli_files.py``."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.screens import on_terminal, read_until
from vmnest import errors
from vmnest.cli import copying, terminal, verbs, words


def parse(*line: str) -> copying.CopyOptions:
    verb = verbs.find(("cp",))
    assert verb is not None
    parser = copying.build_parser(verb)
    words.add_globals(parser)
    options = parser.parse(words.split(parser, line))
    assert isinstance(options, copying.CopyOptions)
    return options


@pytest.mark.parametrize(
    ("text", "sandbox", "path"),
    [
        ("demo:/work/a", "demo", "/work/a"),
        ("demo:a", "demo", "a"),
        ("demo:", "demo", "."),
        ("demo:a:b", "demo", "a:b"),
        ("old name:a", "old name", "a"),
        ("demo:-", "demo", "-"),
        ("a", None, "a"),
        ("./a:b", None, "./a:b"),
        ("../a:b", None, "../a:b"),
        (".a:b", None, ".a:b"),
        ("/a:b", None, "/a:b"),
        ("a/b:c", None, "a/b:c"),
    ],
)
def test_a_place_is_in_a_sandbox_if_a_name_stands_before_a_colon(text: str, sandbox: str | None, path: str) -> None:
    place = copying.parse_place(text)
    assert (place.sandbox, place.path) == (sandbox, path)


def test_a_colon_without_a_name_is_no_place() -> None:
    with pytest.raises(errors.UsageError, match="the name of the sandbox is missing") as caught:
        copying.parse_place(":a")
    assert caught.value.hint == "A file of this machine is written ./:a"


@given(st.binary().filter(lambda name: b"\0" not in name))
def test_a_path_on_this_machine_is_the_bytes_that_were_typed(name: bytes) -> None:
    place = copying.parse_place((b"./" + name).decode("utf-8", "surrogateescape"))
    assert os.fsencode(place.path) == b"./" + name


def test_options_stand_anywhere() -> None:
    options = parse("-r", "a", "--exclude", "*.pyc", "demo:", "--exclude=-x")
    assert (options.recursive, options.exclude, options.names) == (True, ["*.pyc", "-x"], ["a", "demo:"])
    assert parse("-R", "a", "b").recursive
    assert parse("--recursive", "-", "--", "-a").names == ["-", "-a"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (("a", "b"), "neither side is in a sandbox"),
        (("demo:a", "b", "c"), "neither side is in a sandbox"),
        (("-", "b"), "neither side is in a sandbox"),
        (("-", "-"), "a dash is for one copy"),
        (("-", "-", "demo:"), "a dash is for one copy"),
        (("demo:a", "-", "demo:b"), "a dash is for one copy"),
        (("demo:a", "demo:b", "-"), "a dash is for one copy"),
    ],
)
def test_a_line_that_cannot_be_meant_is_refused_before_anybody_is_asked(line: tuple[str, ...], message: str) -> None:
    verb = verbs.find(("cp",))
    assert verb is not None
    options = parse("--quiet", *line)
    with pytest.raises(errors.UsageError, match=message):
        copying.run(verb, options)


@contextmanager
def standard_input(data: bytes, *, blocks: bool = True) -> Iterator[None]:
    reader, writer = os.pipe()
    kept = os.dup(terminal.STDIN)
    os.dup2(reader, terminal.STDIN)
    os.close(reader)
    os.set_blocking(terminal.STDIN, blocks)
    os.write(writer, data)
    os.close(writer)
    try:
        yield
    finally:
        os.dup2(kept, terminal.STDIN)
        os.close(kept)


@pytest.mark.parametrize("blocks", [True, False])
def test_standard_input_is_read_to_its_end_and_counted(blocks: bool) -> None:
    counts: list[int] = []
    with standard_input(b"abcde", blocks=blocks):
        source = copying.StandardInput(lambda step: counts.append(step.bytes))
        assert [source.read(3), source.read(3), source.read(3)] == [b"abc", b"de", b""]
    assert counts == [3, 5, 5]
    assert (source.total, source.path) == (None, "-")


def test_standard_input_that_nothing_came_of_yet_is_waited_for() -> None:
    reader, writer = os.pipe()
    kept = os.dup(terminal.STDIN)
    os.dup2(reader, terminal.STDIN)
    os.close(reader)
    os.set_blocking(terminal.STDIN, False)
    typing = threading.Timer(0.05, os.write, (writer, b"late"))
    typing.start()
    try:
        assert copying.StandardInput(lambda step: None).read(10) == b"late"
    finally:
        typing.join()
        os.close(writer)
        os.dup2(kept, terminal.STDIN)
        os.close(kept)


def test_standard_input_that_cannot_be_read_is_a_local_error() -> None:
    folder, kept = os.open("/", os.O_RDONLY), os.dup(terminal.STDIN)
    os.dup2(folder, terminal.STDIN)
    os.close(folder)
    try:
        with pytest.raises(errors.LocalFileError, match="cannot read standard input: Is a directory"):
            copying.StandardInput(lambda step: None).read(1)
    finally:
        os.dup2(kept, terminal.STDIN)
        os.close(kept)


def meters() -> int:
    return [thread.name for thread in threading.enumerate()].count("vmnest-meter")


@pytest.mark.parametrize(("count", "lines"), [(10, 10), (11, 11), (590, 11)])
def test_a_terminal_is_not_flooded_by_what_was_not_copied(count: int, lines: int) -> None:
    skipped = [{"path": str(number), "reason": "a socket"} for number in range(count)]
    with on_terminal(terminal.STDERR) as screen:
        copying._tell_what_is_left_out(skipped, options=parse("a", "demo:"))
        text = read_until(screen, re.compile(rb"(.*\n){%d}" % lines))
    said = text.decode().splitlines()
    assert len(said) == lines
    last = "9: a socket" if count == 10 else f"and {count - 10} more; --json tells all"
    assert (said[0], said[-1]) == ("vmnest: not copied: 0: a socket", f"vmnest: not copied: {last}")


def test_whoever_keeps_what_was_not_copied_gets_all_of_it(capfd: pytest.CaptureFixture[str]) -> None:
    skipped = [{"path": str(number), "reason": "a socket"} for number in range(590)]
    copying._tell_what_is_left_out(skipped, options=parse("a", "demo:"))
    assert len(capfd.readouterr().err.splitlines()) == 590


def test_input_that_is_typed_has_no_meter_to_write_over_it() -> None:
    options = parse("-", "demo:a")
    with on_terminal(terminal.STDERR):
        with standard_input(b""), copying.open_input("copying", options=options):
            assert meters() == 1
        with on_terminal(terminal.STDIN), copying.open_input("copying", options=options):
            assert meters() == 0
    with standard_input(b""), copying.open_input("copying", options=options):
        assert meters() == 0
