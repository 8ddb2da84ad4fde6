"""CloudWatch Logs on the wire."""

import json
from datetime import datetime, timezone

import pytest

from tests.support.account import KEYS, signed
from vmnest.aws.credentials import Credentials, Secret
from vmnest.local import callers, logs, logs_calls

GROUP, STREAM = "/a/b", "s[1.0]x"
NOW = 1_800_000_000_000  # where the fake clock begins


class Stage:
    """The service, and who asks it."""

    def __init__(self, folder, clock):
        self.clock = clock
        self.kept = logs.Logs(folder, clock=clock)
        known = callers.Callers(KEYS, clock=clock)
        self.service = logs_calls.LogsService(self.kept, known=known, clock=clock)

    def send(self, operation, body, *, target="/", **options):
        when = datetime.fromtimestamp(self.clock.time(), timezone.utc)
        headers = [("X-Amz-Target", f"Logs_20140328.{operation}")]
        request = signed("POST", target, body, service="logs", when=when, headers=headers, **options)
        reply = self.service.answer(request, body)
        return reply.status, json.loads(reply.body)

    def ask(self, operation, **params):
        status, answer = self.send(operation, json.dumps(params).encode())
        assert status == 200, answer
        return answer

    def refused(self, operation, **params):
        status, answer = self.send(operation, json.dumps(params).encode())
        assert status == 400, answer
        return answer["__type"]

    def put(self, *events, stream=STREAM):
        told = [{"timestamp": NOW + when, "message": message} for when, message in events]
        return self.ask("PutLogEvents", logGroupName=GROUP, logStreamName=stream, logEvents=told)


@pytest.fixture
def stage(tmp_path, fake_clock):
    return Stage(str(tmp_path), fake_clock)


@pytest.fixture
def full(stage):
    stage.ask("CreateLogGroup", logGroupName=GROUP, tags={"a": "1"})
    stage.ask("CreateLogStream", logGroupName=GROUP, logStreamName=STREAM)
    stage.put(*((number, f"line {number}") for number in range(5)))
    return stage


def messages(answer):
    return [event["message"] for event in answer["events"]]


class TestGroupsAndStreams:
    def test_groups_are_described(self, full):
        (group,) = full.ask("DescribeLogGroups", logGroupNamePrefix="/a")["logGroups"]
        assert group["logGroupName"] == GROUP
        assert group["arn"] == "arn:aws:logs:us-east-1:000000000000:log-group:/a/b:*"
        assert "retentionInDays" not in group
        assert full.ask("DescribeLogGroups", logGroupNamePrefix="/b")["logGroups"] == []
        assert len(full.ask("DescribeLogGroups", logGroupNamePattern="A/B")["logGroups"]) == 1

    def test_lists_have_pages(self, stage):
        for name in ("a", "b", "c"):
            stage.ask("CreateLogGroup", logGroupName=name)
        first = stage.ask("DescribeLogGroups", limit=2)
        rest = stage.ask("DescribeLogGroups", limit=2, nextToken=first["nextToken"])
        found = [group["logGroupName"] for answer in (first, rest) for group in answer["logGroups"]]
        assert (found, "nextToken" in rest) == (["a", "b", "c"], False)
        assert stage.refused("DescribeLogGroups", nextToken="é") == "InvalidParameterException"
        assert stage.refused("DescribeLogGroups", limit=51) == "InvalidParameterException"

    def test_retention_is_one_of_some(self, full):
        full.ask("PutRetentionPolicy", logGroupName=GROUP, retentionInDays=7)
        assert full.ask("DescribeLogGroups")["logGroups"][0]["retentionInDays"] == 7
        assert full.refused("PutRetentionPolicy", logGroupName=GROUP, retentionInDays=8) == "InvalidParameterException"
        full.ask("DeleteRetentionPolicy", logGroupName=GROUP)
        assert "retentionInDays" not in full.ask("DescribeLogGroups")["logGroups"][0]

    def test_streams_by_name_and_by_time(self, full):
        full.ask("CreateLogStream", logGroupName=GROUP, logStreamName="a")
        full.put((9, "x"), stream="a")

        def named(**options):
            found = full.ask("DescribeLogStreams", logGroupName=GROUP, **options)["logStreams"]
            return [stream["logStreamName"] for stream in found]

        assert named() == ["a", STREAM]
        assert named(orderBy="LastEventTime") == [STREAM, "a"]
        assert named(orderBy="LastEventTime", descending=True, limit=1) == ["a"]
        assert named(logStreamNamePrefix="s") == [STREAM]
        (stream,) = full.ask("DescribeLogStreams", logGroupName=GROUP, logStreamNamePrefix="s")["logStreams"]
        assert (stream["firstEventTimestamp"], stream["lastEventTimestamp"]) == (NOW, NOW + 4)

    @pytest.mark.parametrize("is_descending", [False, True], ids=["ascending", "descending"])
    def test_pages_of_streams_stay_in_step_while_others_are_made(self, stage, is_descending):
        stage.ask("CreateLogGroup", logGroupName=GROUP)
        for name in ("b", "d", "f", "h"):
            stage.ask("CreateLogStream", logGroupName=GROUP, logStreamName=name)
        found, token, new = [], {}, iter("aceg")
        while True:
            options = {"limit": 1, "descending": is_descending, **token}
            answer = stage.ask("DescribeLogStreams", logGroupName=GROUP, **options)
            found += [stream["logStreamName"] for stream in answer["logStreams"]]
            if "nextToken" not in answer:
                break
            token = {"nextToken": answer["nextToken"]}
            for name in next(new, ""):
                stage.ask("CreateLogStream", logGroupName=GROUP, logStreamName=name)
        assert found == sorted(set(found), reverse=is_descending)
        assert set(found) >= set("bdfh")

    def test_tags(self, full):
        arn = "arn:aws:logs:us-east-1:000000000000:log-group:/a/b"
        full.ask("TagResource", resourceArn=arn, tags={"b": "2"})
        assert full.ask("ListTagsForResource", resourceArn=arn)["tags"] == {"a": "1", "b": "2"}
        full.ask("UntagResource", resourceArn=arn, tagKeys=["a"])
        assert full.ask("ListTagsForResource", resourceArn=arn)["tags"] == {"b": "2"}

    def test_they_go(self, full):
        full.ask("DeleteLogStream", logGroupName=GROUP, logStreamName=STREAM)
        full.ask("DeleteLogGroup", logGroupName=GROUP)
        assert full.refused("DeleteLogGroup", logGroupName=GROUP) == "ResourceNotFoundException"


class TestPut:
    @pytest.mark.parametrize(
        "events",
        [
            [],
            [{}],
            [1],
            [{"timestamp": NOW, "message": ""}],
            [{"timestamp": "x", "message": "m"}],
            [{"timestamp": True, "message": "m"}],
            [{"timestamp": -1, "message": "m"}],
            [{"timestamp": NOW + 1, "message": "m"}, {"timestamp": NOW, "message": "m"}],
            [{"timestamp": NOW, "message": "x" * 1_048_576}],
        ],
    )
    def test_events_are_in_order_and_not_too_many(self, full, events):
        params = {"logGroupName": GROUP, "logStreamName": STREAM, "logEvents": events}
        assert full.refused("PutLogEvents", **params) == "InvalidParameterException"

    def test_what_is_too_old_or_too_new_is_told(self, full):
        day = 86_400_000
        answer = full.put((-15 * day, "old"), (5, "good"), (day, "new"))
        assert answer["rejectedLogEventsInfo"] == {"tooOldLogEventEndIndex": 1, "tooNewLogEventStartIndex": 2}
        assert full.kept.events(GROUP, STREAM)[-1].message == "good"


class TestGet:
    def get(self, stage, **params):
        return stage.ask("GetLogEvents", logGroupName=GROUP, logStreamName=STREAM, **params)

    def test_the_latest_come_first_unless_asked_otherwise(self, full):
        assert messages(self.get(full, limit=2)) == ["line 3", "line 4"]
        assert messages(self.get(full, limit=2, startFromHead=True)) == ["line 0", "line 1"]

    def test_tokens_lead_on_and_back(self, full):
        first = self.get(full, limit=2, startFromHead=True)
        second = self.get(full, limit=2, nextToken=first["nextForwardToken"])
        assert messages(second) == ["line 2", "line 3"]
        assert messages(self.get(full, limit=2, nextToken=second["nextBackwardToken"])) == ["line 0", "line 1"]

    def test_at_the_end_the_token_stays_and_finds_what_is_new(self, full):
        token = self.get(full)["nextForwardToken"]
        again = self.get(full, nextToken=token)
        assert (again["events"], again["nextForwardToken"]) == ([], token)
        full.put((9, "more"))
        assert messages(self.get(full, nextToken=token)) == ["more"]

    def test_who_is_at_the_end_costs_no_reading(self, full, tmp_path):
        token = self.get(full)["nextForwardToken"]
        for path in tmp_path.rglob("*.jsonl"):
            path.unlink()
        assert self.get(full, nextToken=token)["nextForwardToken"] == token
        since = {"logGroupName": GROUP, "startTime": NOW + 5}
        assert full.ask("FilterLogEvents", **since)["events"] == []

    def test_times_bound_it(self, full):
        assert messages(self.get(full, startTime=NOW + 1, endTime=NOW + 3)) == ["line 1", "line 2"]

    def test_an_answer_is_not_endless(self, full, monkeypatch):
        monkeypatch.setattr(logs_calls, "MAX_ANSWER_BYTES", 70)
        assert len(self.get(full)["events"]) == 2

    def test_a_token_of_nobody_is_refused(self, full):
        params = {"logGroupName": GROUP, "logStreamName": STREAM, "nextToken": "x"}
        assert full.refused("GetLogEvents", **params) == "InvalidParameterException"
        assert full.refused("GetLogEvents", logGroupName=GROUP, logStreamName="none") == "ResourceNotFoundException"

    def test_a_group_may_be_named_by_its_arn(self, full):
        arn = "arn:aws:logs:us-east-1:000000000000:log-group:/a/b"
        assert len(full.ask("GetLogEvents", logGroupIdentifier=arn, logStreamName=STREAM)["events"]) == 5


class TestFilter:
    @pytest.fixture
    def full(self, full):
        full.ask("CreateLogStream", logGroupName=GROUP, logStreamName="a")
        full.put((2, "other 2"), stream="a")
        return full

    def find(self, stage, **params):
        return stage.ask("FilterLogEvents", logGroupName=GROUP, **params)

    def test_all_streams_by_time(self, full):
        found = self.find(full, startTime=NOW + 2)
        assert messages(found) == ["other 2", "line 2", "line 3", "line 4"]
        assert len({event["eventId"] for event in found["events"]}) == 4
        assert messages(self.find(full, startTime=NOW + 1, endTime=NOW + 2)) == ["line 1", "other 2", "line 2"]

    def test_a_pattern_and_a_stream_choose(self, full):
        assert messages(self.find(full, filterPattern="2")) == ["other 2", "line 2"]
        assert messages(self.find(full, filterPattern="2", logStreamNames=[STREAM])) == ["line 2"]
        assert messages(self.find(full, logStreamNamePrefix="a")) == ["other 2"]
        both = {"logGroupName": GROUP, "logStreamNames": ["a"], "logStreamNamePrefix": "a"}
        assert full.refused("FilterLogEvents", **both) == "InvalidParameterException"
        missing = {"logGroupName": GROUP, "logStreamNames": ["none"]}
        assert full.refused("FilterLogEvents", **missing) == "ResourceNotFoundException"

    @pytest.mark.parametrize(("limit", "most"), [(2, 1 << 20), (1000, 70)], ids=["events", "bytes"])
    def test_pages_together_are_the_whole(self, full, monkeypatch, limit, most):
        monkeypatch.setattr(logs_calls, "MAX_ANSWER_BYTES", most)
        found, token = [], {}
        while True:
            answer = self.find(full, limit=limit, **token)
            assert 1 <= len(answer["events"]) <= 2
            found += messages(answer)
            if "nextToken" not in answer:
                break
            token = {"nextToken": answer["nextToken"]}
        monkeypatch.undo()
        assert found == messages(self.find(full))


class TestForms:
    @pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b"[" * 100_000])
    def test_a_body_that_is_no_object(self, stage, body):
        assert stage.send("DescribeLogGroups", body) == (
            400,
            {"__type": "SerializationException", "message": "The body is no JSON object."},
        )

    def test_what_is_not_here_names_what_is(self, stage):
        status, answer = stage.send("StartQuery", b"{}")
        assert (status, answer["__type"]) == (400, "UnknownOperationException")
        assert "GetLogEvents" in answer["message"]
        assert stage.send("DescribeLogGroups", b"{}", target="/x")[1]["__type"] == "UnknownOperationException"

    def test_a_signature_that_does_not_hold(self, stage):
        status, answer = stage.send("DescribeLogGroups", b"{}", credentials=Credentials("XX", Secret("SK")))
        assert (status, answer["__type"]) == (400, "UnrecognizedClientException")

    @pytest.mark.parametrize("name", [None, "", "a b", "a:b", "x" * 513, 1])
    def test_names_are_those_of_the_service(self, stage, name):
        expected = "SerializationException" if name == 1 else "InvalidParameterException"
        assert stage.refused("CreateLogGroup", logGroupName=name) == expected

    def test_a_failure_of_ours_is_a_500_and_in_the_log(self, stage, monkeypatch, caplog):
        monkeypatch.setattr(stage.kept, "groups", lambda: 1 / 0)
        status, answer = stage.send("DescribeLogGroups", b"{}")
        assert (status, answer["__type"]) == (500, "ServiceUnavailableException")
        assert "ZeroDivisionError" in caplog.text

    def test_a_full_disk_is_a_500(self, stage, tmp_path):
        (tmp_path / "account" / "logs").rmdir()
        (tmp_path / "account" / "logs").touch()
        status, answer = stage.send("CreateLogGroup", b'{"logGroupName": "a"}')
        assert (status, answer["__type"]) == (500, "ServiceUnavailableException")
