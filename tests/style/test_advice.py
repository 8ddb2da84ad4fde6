"""What messages, help and the manual advise to type exists."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator

import pytest

from tests.support.paths import ROOT
from vmnest.cli import verbs, words

# "vmnest infra init --force", with words for values in between ("vmnest create NAME --ingress").
_ADVICE = re.compile(r"\bvmnest(?: --local)?((?: [a-z]+){1,2})((?: [A-Z]+)*(?: --[a-z][a-z-]*(?: [A-Z]+)*)+)")


def find_advice() -> Iterator[tuple[str, str, str]]:
    """Where options are advised, the verb with what stands before them, and the options."""
    for path in (ROOT / "README.rst", *sorted((ROOT / "vmnest").rglob("*.py"))):
        for match in _ADVICE.finditer(path.read_text()):
            yield str(path.relative_to(ROOT)), match.group(1).strip(), match.group(2)


def find_verb(title: str) -> verbs.Verb | None:
    """The verb, of one word or two."""
    return verbs.find(tuple(title.split())) or verbs.find(tuple(title.split()[:1]))


ADVICE = sorted(set(find_advice()))


def test_advice_is_found() -> None:
    assert ("vmnest/infra/config.py", "infra init", " --force") in ADVICE
    assert len(ADVICE) > 10


@pytest.mark.parametrize(("place", "title", "options"), ADVICE, ids=[" ".join(each) for each in ADVICE])
def test_the_options_exist(place: str, title: str, options: str) -> None:
    verb = find_verb(title)
    assert verb is not None, place
    parser = importlib.import_module(f"vmnest.cli.{verb.module}").build_parser(verb)
    words.add_globals(parser)
    for option in re.findall(r"--[a-z-]+", options):
        assert parser.is_known(option), (place, option)
