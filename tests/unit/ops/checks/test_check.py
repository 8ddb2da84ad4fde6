"""One thing that was looked at."""

from __future__ import annotations

import json

import pytest

from vmnest.ops.checks import check


def test_it_says_everything_as_plain_json() -> None:
    found = check.Check(
        "aws.region", title="region", verdict=check.WARNING, detail="none", remedy="Set one.", data={"tried": ["a"]}
    )
    assert json.loads(json.dumps(found.to_wire())) == {
        "id": "aws.region",
        "area": "aws",
        "title": "region",
        "verdict": "warning",
        "detail": "none",
        "remedy": "Set one.",
        "data": {"tried": ["a"]},
    }
    assert repr(found) == "Check('aws.region', warning: none)"


def test_nothing_secret_is_said() -> None:
    url = "http://me:hunter2@proxy:3128"
    found = check.Check(
        "aws.proxy", title="proxy", verdict=check.OK, detail=url, remedy=f"unset {url}", data={"proxy": url}
    )
    assert "hunter2" not in json.dumps(found.to_wire())
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize(("name", "verdict"), [("moon.phase", check.OK), ("host.python", "fine")])
def test_areas_and_verdicts_are_those_that_are_known(name: str, verdict: str) -> None:
    with pytest.raises(AssertionError):
        check.Check(name, title="", verdict=verdict, detail="")
