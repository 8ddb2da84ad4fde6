"""CloudWatch Logs, and as much of the MicroVM service as its reader needs, at one address; its faults are the test's.

It keeps to what AWS says of its pages: any of them may be empty with others behind it, FilterLogEvents ends without a
token, GetLogEvents by the token that it was given. Events have ids that rise as they come.
"""

from __future__ import annotations

import itertools
import json
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.control import IMAGE_ARN, vm
from tests.support.relaying import Answer, Asked, relaying
from vmnest import registry

MICROVM = "microvm-1f0c7f3e-0001"
GROUP = "/aws/lambda-microvms/demo"
STREAM = f"2026/09/15[1.0]{MICROVM}"
STARTED = 1789463942.026  # of ``control.vm``, on that day
STARTED_MS = 1789463942026
_MICROVMS = "/2025-09-09/microvms/"
_IMAGES = "/2025-09-09/microvm-images/"


def _body(**members: object) -> bytes:
    return json.dumps(members).encode()


def refusal(error_type: str, message: str = "no", *, status: int = 400) -> Answer:
    """An error as logs answer it."""
    return Answer(status, [("Content-Type", "application/x-amz-json-1.1")], _body(__type=error_type, message=message))


THROTTLED = refusal("ThrottlingException", "Rate exceeded")
DENIED = refusal("AccessDeniedException", "User is not authorized to perform: logs:DescribeLogStreams")
MISSING = refusal("ResourceNotFoundException", "The specified log group does not exist.")


@dataclass
class LogPlane:
    """What there is, and what is to go wrong.

    Attributes:
        url: Its address.
        groups: Group -> stream -> events.
        microvms: Id -> what GetMicrovm answers; what is not here is not known.
        most: Events, or streams, on a page.
        empty: Empty pages before each other page.
        failures: Answers to the next calls of logs, each instead of what it would be; None for one that is as it is.
        denied: Groups that nobody may look into.
        is_round: FilterLogEvents gives out the same token for ever.
        on_call: Told of each call of logs before it is answered: its name, and how many of that name there were before.
        calls: The calls of logs, in order, with their parameters.
        on_look: Told of each question about a MicroVM before it is answered, and how many there were before.
        is_shut: Nobody may ask for MicroVMs.
        version: What GetMicrovmImageVersion answers.
    """

    url: str = ""
    groups: dict[str, dict[str, list[dict[str, Any]]]] = field(default_factory=dict)
    microvms: dict[str, dict[str, Any]] = field(default_factory=dict)
    most: int = 10_000
    empty: int = 0
    failures: list[Answer | None] = field(default_factory=list)
    denied: set[str] = field(default_factory=set)
    is_round: bool = False
    on_call: Callable[[str, int], None] = lambda name, number: None
    on_look: Callable[[int], None] = lambda number: None
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    looks: int = 0
    is_shut: bool = False
    version: dict[str, Any] = field(default_factory=dict)
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(10**55))

    def put(
        self, *messages: str, at: int = STARTED_MS, step: int = 0, stream: str = STREAM, group: str = GROUP
    ) -> None:
        """Log these, each ``step`` milliseconds after the one before."""
        events = self.groups.setdefault(group, {}).setdefault(stream, [])
        for number, message in enumerate(messages):
            time_ms = at + number * step
            events.append(
                {
                    "timestamp": time_ms,
                    "message": message,
                    "ingestionTime": time_ms + 5,
                    "eventId": str(next(self.ids)),
                    "logStreamName": stream,
                }
            )

    def launch(self, microvm_id: str = MICROVM, **members: object) -> None:
        """Let there be a MicroVM."""
        self.microvms[microvm_id] = vm(microvmId=microvm_id, **members)

    def end(self, microvm_id: str = MICROVM, *, at: float = STARTED + 60) -> None:
        """Let it end."""
        self.launch(microvm_id, state="TERMINATED", stateReason="Success.", terminatedAt=at)

    def names(self) -> list[str]:
        """The operations that were called."""
        return [name for name, _ in self.calls]

    # -- answers -------------------------------------------------------------------------------------------------------

    def relay(self, asked: Asked) -> Answer:
        target = next((value for name, value in asked.headers if name.lower() == "x-amz-target"), None)
        if asked.target.startswith(_IMAGES):
            return Answer(200, [("Content-Type", "application/json")], _body(**self.version))
        if target is None and asked.target.startswith(f"{_MICROVMS.rstrip('/')}?"):
            return Answer(200, [("Content-Type", "application/json")], _body(items=list(self.microvms.values())))
        if target is None:
            return self._microvm(urllib.parse.unquote(asked.target.removeprefix(_MICROVMS)))
        name, params = target.rpartition(".")[2], json.loads(asked.body)
        number = self.names().count(name)
        self.calls.append((name, params))
        self.on_call(name, number)
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            return failure
        group = params.get("logGroupName")
        if group in self.denied:
            return DENIED
        if group is not None and group not in self.groups:
            return MISSING
        answers: dict[str, Callable[[Mapping[str, Any]], Answer]] = {
            "DescribeLogGroups": self._describe_groups,
            "DescribeLogStreams": self._describe_streams,
            "FilterLogEvents": self._filter_events,
            "GetLogEvents": self._get_events,
        }
        return answers[name](params)

    def _microvm(self, microvm_id: str) -> Answer:
        self.on_look(self.looks)
        self.looks += 1
        if self.is_shut:
            headers = [("x-amzn-errortype", "AccessDeniedException"), ("Content-Type", "application/json")]
            return Answer(403, headers, _body(message="not authorized to perform: lambda:GetMicrovm"))
        found = self.microvms.get(microvm_id)
        if found is None:
            headers = [("x-amzn-errortype", "ResourceNotFoundException"), ("Content-Type", "application/json")]
            return Answer(404, headers, _body(message=f"MicroVM not found: {microvm_id}"))
        return Answer(200, [("Content-Type", "application/json")], _body(**found))

    def _describe_groups(self, params: Mapping[str, Any]) -> Answer:
        names = [name for name in sorted(self.groups) if name.startswith(params.get("logGroupNamePrefix", ""))]
        return self._page([{"logGroupName": name} for name in names], params, member="logGroups")

    def _describe_streams(self, params: Mapping[str, Any]) -> Answer:
        prefix, streams = params.get("logStreamNamePrefix", ""), self.groups[params["logGroupName"]]
        assert not (prefix and "orderBy" in params), "AWS refuses both"
        names = [name for name in sorted(streams) if name.startswith(prefix)]
        if params.get("orderBy") == "LastEventTime":
            names.sort(key=lambda name: max((each["timestamp"] for each in streams[name]), default=0))
        if params.get("descending"):
            names.reverse()
        return self._page([{"logStreamName": name} for name in names], params, member="logStreams")

    def _filter_events(self, params: Mapping[str, Any]) -> Answer:
        streams, wanted = self.groups[params["logGroupName"]], params.get("logStreamNames")
        if wanted and not set(wanted) <= set(streams):
            return MISSING
        chosen = wanted or [name for name in streams if name.startswith(params.get("logStreamNamePrefix", ""))]
        events = [event for name in chosen for event in streams[name] if event["timestamp"] >= params["startTime"]]
        events.sort(key=lambda event: event["timestamp"])
        if self.is_round:
            return _answer(events=events[: self.most], nextToken="again")
        return self._page(events, params, member="events")

    def _get_events(self, params: Mapping[str, Any]) -> Answer:
        events = self.groups[params["logGroupName"]].get(params["logStreamName"])
        if events is None:
            return MISSING
        assert not params["startFromHead"]
        events = sorted(
            (event for event in events if event["timestamp"] >= params["startTime"]),
            key=lambda event: event["timestamp"],
        )
        end, empty = (len(events), self.empty) if "nextToken" not in params else _token(params["nextToken"])
        if empty and end:
            return _answer(events=[], nextBackwardToken=f"{end}/{empty - 1}", nextForwardToken="f")
        begin = max(0, end - min(self.most, params["limit"]))
        shown = [{name: event[name] for name in ("timestamp", "message")} for event in events[begin:end]]
        token = params.get("nextToken", f"0/{self.empty}") if not shown else f"{begin}/{self.empty}"
        return _answer(events=shown, nextBackwardToken=token, nextForwardToken="f")

    def _page(self, items: list[dict[str, Any]], params: Mapping[str, Any], *, member: str) -> Answer:
        begin, empty = (0, self.empty) if "nextToken" not in params else _token(params["nextToken"])
        if empty:
            return _answer(**{member: [], "nextToken": f"{begin}/{empty - 1}"})
        end = begin + self.most
        token = {"nextToken": f"{end}/{self.empty}"} if end < len(items) else {}
        return _answer(**{member: items[begin:end], **token})


def _token(token: str) -> tuple[int, int]:
    begin, _, empty = token.partition("/")
    return int(begin), int(empty)


def _answer(**members: object) -> Answer:
    return Answer(200, [("Content-Type", "application/x-amz-json-1.1")], _body(**members))


@contextmanager
def open_log_plane() -> Iterator[LogPlane]:
    """One with nothing in it, until the block ends."""
    plane = LogPlane()
    with relaying(plane.relay) as plane.url:
        yield plane


@pytest.fixture
def log_plane() -> Iterator[LogPlane]:
    """CloudWatch Logs with one MicroVM that runs and has logged nothing."""
    with open_log_plane() as plane:
        plane.launch()
        yield plane


@pytest.fixture
def logged(log_plane: LogPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> registry.Registry:
    """This process works with that account, and one sandbox is recorded: ``web`` is its MicroVM."""
    monkeypatch.setenv("AGENT_SANDBOX_STATE", str(tmp_path / "state.json"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", log_plane.url)
    known = registry.open_default()
    known.put(
        registry.Record("web", microvm_id=MICROVM, image_arn=IMAGE_ARN, region="us-east-1", created_at=STARTED - 2)
    )
    return known
