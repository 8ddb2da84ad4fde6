"""``fs``: what its command lines mean. What it does is a matter of ``tests/functional/test_cli_files.py``."""

from __future__ import annotations

import pytest

from vmnest import errors
from vmnest.cli import copying, fs, verbs, words

KINDS = [verb.words[1] for verb in verbs.in_group("fs")]


def parse(kind: str, *line: str) -> words.Options:
    verb = verbs.find(("fs", kind))
    assert verb is not None
    parser = fs.build_parser(verb)
    words.add_globals(parser)
    return parser.parse(words.split(parser, line))


@pytest.mark.parametrize("kind", KINDS)
def test_every_verb_has_a_parser_and_does_something(kind: str) -> None:
    assert kind in fs._VERBS
    options = parse(kind, "demo", "a", *(["b"] if kind in ("mv", "cp", "chmod") else []), "--no-resume")
    assert options.names[0] == "demo"
    assert isinstance(options, (fs._FsOptions, copying.CopyOptions))
    assert options.no_resume


@pytest.mark.parametrize("kind", KINDS)
def test_the_sandbox_must_be_named(kind: str) -> None:
    with pytest.raises(errors.UsageError, match="the name is missing"):
        parse(kind)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "ls"])
def test_only_a_list_does_without_a_path(kind: str) -> None:
    with pytest.raises(errors.UsageError, match="is missing"):
        parse(kind, "demo")
    assert parse("ls", "demo").names == ["demo"]


def test_the_options_of_a_list() -> None:
    options = parse("ls", "-la0", "demo", "a", "b", "--depth", "3")
    assert isinstance(options, fs._ListOptions)
    assert (options.long, options.all, options.null, options.depth) == (True, True, True, 3)
    assert options.names == ["demo", "a", "b"]


@pytest.mark.parametrize("depth", ["0", "-1", "x", "1.5", "", "10001", "99999999999", "٣"])
def test_a_depth_is_a_number_of_levels(depth: str) -> None:
    with pytest.raises(errors.UsageError, match="--depth: must be a number of levels"):
        parse("ls", "demo", "--depth", depth)


@pytest.mark.parametrize(("kind", "flag"), [("mkdir", "-m"), ("mkdir", "--mode"), ("write", "--mode")])
def test_a_mode_is_octal(kind: str, flag: str) -> None:
    options = parse(kind, "demo", "a", flag, "0640")
    assert isinstance(options, (fs._MakeOptions, fs._WriteOptions))
    assert options.mode == 0o640
    with pytest.raises(errors.UsageError, match="--mode: must be permission bits in octal"):
        parse(kind, "demo", "a", flag, "u+x")


def test_a_change_of_modes_is_checked_before_anybody_is_asked() -> None:
    verb = verbs.find(("fs", "chmod"))
    assert verb is not None
    with pytest.raises(errors.UsageError, match="MODE must be permission bits such as 644"):
        fs.run(verb, parse("chmod", "-q", "demo", "much", "f"))


@pytest.mark.parametrize("kind", ["ls", "cat", "stat", "mkdir", "rm", "mv", "cp", "write"])
def test_a_variable_that_is_empty_is_not_the_working_directory(kind: str) -> None:
    line = [("", "b"), ("a", "")] if kind in ("mv", "cp") else [("",)]
    for names in line:
        with pytest.raises(errors.UsageError, match=r"(PATH|SRC) is empty"):
            parse(kind, "-q", "demo", *names)
