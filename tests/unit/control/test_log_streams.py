"""A log is found under the names that were measured, under those documented, or by the id in any other."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from tests.support.log_plane import GROUP, MICROVM, STARTED, STREAM, LogPlane, refusal
from tests.support.logs import Open
from vmnest import errors
from vmnest.control import log_streams
from vmnest.control.log_streams import Subject

ARN = "arn:aws:lambda:us-east-1:111122223333:microvm-image:demo"
BEGAN = datetime.fromtimestamp(STARTED, timezone.utc)
SUBJECT = Subject(MICROVM, ARN, "1.0", BEGAN)
DOCUMENTED = "/aws/lambda/microvms/demo"


def test_the_groups_are_named_after_the_image() -> None:
    assert log_streams.groups_of(SUBJECT) == (GROUP, DOCUMENTED)
    assert log_streams.groups_of(Subject(MICROVM)) == ()


def test_the_measured_name_takes_one_call(log_plane: LogPlane, open_log: Open) -> None:
    log_plane.put("a")
    found = open_log(SUBJECT).find()
    assert (found.group, found.is_there, found.streams, found.prefix) == (GROUP, True, (STREAM,), STREAM)
    assert log_plane.calls == [("DescribeLogStreams", {"logGroupName": GROUP, "logStreamNamePrefix": STREAM})]


def test_streams_beside_the_main_one_are_found_with_it(log_plane: LogPlane, open_log: Open) -> None:
    log_plane.put("a")
    log_plane.put("b", stream=f"{STREAM}/egress")
    assert open_log(SUBJECT).find().streams == (STREAM, f"{STREAM}/egress")


def test_the_documented_names_will_do(log_plane: LogPlane, open_log: Open) -> None:
    log_plane.put("a", stream=MICROVM, group=DOCUMENTED)
    found = open_log(SUBJECT).find()
    assert (found.group, found.streams) == (DOCUMENTED, (MICROVM,))


def test_any_name_with_the_id_in_it_will_do(log_plane: LogPlane, open_log: Open) -> None:
    log_plane.most = 2
    log_plane.empty = 1
    for number in range(5):
        log_plane.put("x", stream=f"2026/09/15[1.0]microvm-other-{number}", at=number)
    log_plane.put("a", stream=f"odd/{MICROVM}", at=0)
    found = open_log(SUBJECT).find()
    assert (found.streams, found.prefix) == ((f"odd/{MICROVM}",), f"odd/{MICROVM}")


def test_streams_of_several_forms_are_read_by_their_names(log_plane: LogPlane, open_log: Open) -> None:
    log_plane.put("a", stream=f"odd/{MICROVM}")
    log_plane.put("b", stream=f"even/{MICROVM}")
    found = open_log(SUBJECT).find()
    assert found.prefix is None
    assert found.to_wire() == {"logGroupName": GROUP, "logStreamNames": [f"odd/{MICROVM}", f"even/{MICROVM}"]}


def test_an_id_within_a_longer_one_is_another(log_plane: LogPlane, open_log: Open) -> None:
    log_plane.put("a", stream=f"{STREAM}0")
    log_plane.put("a", stream=f"2026/09/15[1.0]x-{MICROVM}")
    found = open_log(SUBJECT).find()
    assert (found.is_there, found.streams) == (True, ())


def test_a_search_ends(log_plane: LogPlane, open_log: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_streams, "MOST_STREAMS_SEARCHED", 10)
    log_plane.most = 5
    for number in range(100):
        log_plane.put("x", stream=f"s{number}", at=1000 + number)
    log_plane.put("a", stream=f"odd/{MICROVM}", at=0)
    assert open_log(SUBJECT).find().streams == ()
    assert len(log_plane.calls) == 2 + 2 + 1  # by both names, two pages of the search; the other group is missing


def test_who_has_no_time_does_not_search(log_plane: LogPlane, open_log: Open) -> None:
    log_plane.put("a", stream=f"odd/{MICROVM}")
    assert open_log(SUBJECT).find(is_thorough=False).streams == ()
    assert log_plane.names() == ["DescribeLogStreams"] * 3


@pytest.mark.parametrize("days", [0, 1, -1])
def test_without_the_version_the_days_around_the_launch_will_do(log_plane: LogPlane, open_log: Open, days: int) -> None:
    stream = f"2026/09/{15 + days:02}[7.0]{MICROVM}"
    log_plane.put("a", stream=stream)
    assert open_log(Subject(MICROVM, ARN, None, BEGAN)).find(is_thorough=False).streams == (stream,)


def test_where_there_is_no_group_there_is_nothing(log_plane: LogPlane, open_log: Open) -> None:
    found = open_log(SUBJECT).find()
    assert (found.group, found.is_there, found.streams) == (GROUP, False, ())


def test_a_group_that_is_there_is_told_before_one_that_is_not(log_plane: LogPlane, open_log: Open) -> None:
    log_plane.groups[DOCUMENTED] = {}
    found = open_log(SUBJECT).find()
    assert (found.group, found.is_there) == (DOCUMENTED, True)


def test_of_two_refusals_the_first_is_told(log_plane: LogPlane, open_log: Open) -> None:
    log_plane.failures = [refusal("AccessDeniedException", "first"), refusal("AccessDeniedException", "second")]
    with pytest.raises(errors.AccessDeniedError, match="first"):
        open_log(SUBJECT).find()


def test_a_group_that_may_not_be_looked_into_is_told_if_the_log_is_nowhere_else(
    log_plane: LogPlane, open_log: Open
) -> None:
    log_plane.denied.add(GROUP)
    with pytest.raises(errors.AccessDeniedError, match="logs:DescribeLogStreams"):
        open_log(SUBJECT).find()
    log_plane.put("a", group=DOCUMENTED)
    assert open_log(SUBJECT).find().group == DOCUMENTED


def test_the_groups_of_all_images_are_listed(log_plane: LogPlane, open_log: Open) -> None:
    log_plane.most = 1
    for group in (GROUP, "/aws/lambda-microvms/b", DOCUMENTED, "/aws/lambda/f"):
        log_plane.groups[group] = {}
    log = open_log(Subject(MICROVM))
    found = log_streams.all_groups(log.service, deadline=log.deadline())
    assert list(found) == ["/aws/lambda-microvms/b", GROUP, DOCUMENTED]


def test_a_listing_without_names_is_empty(log_plane: LogPlane, open_log: Open) -> None:
    log_plane.groups[GROUP] = {STREAM: []}
    log_plane.on_call = lambda name, number: log_plane.groups[GROUP].clear()
    assert open_log(SUBJECT).find().streams == ()
