"""CloudWatch Logs of the local account on the wire: JSON 1.1, the operation in a header field."""

from __future__ import annotations

import base64
import functools
import itertools
import json
import logging
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from .. import deadline, errors
from ..wire import http1, names
from . import callers, faults, httpd, log_files, logs
from .logs_filters import parse_pattern

_LOG = logging.getLogger(__name__)

SERVICE = "logs"
TARGET = "Logs_20140328."
MAX_BATCH_EVENTS = 10_000
MAX_BATCH_BYTES = 1_048_576
_EVENT_OVERHEAD = 26
_NEVER: log_files.Place = (1 << 62, 0)
_OLDEST_MS = 14 * 86_400_000
_NEWEST_MS = 2 * 3_600_000
MAX_ANSWER_BYTES = 1 << 20
RETENTIONS = frozenset({
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653,
})  # fmt: skip

_GROUP = re.compile(r"[.\-_/#A-Za-z0-9]{1,512}")
_STREAM = re.compile(r"[^:*]{1,512}")
_TOKEN = re.compile(r"([fb])/(\d{1,16})\.(\d{1,16})")
_JSON = ("Content-Type", "application/x-amz-json-1.1")
_SIGNATURE_ERRORS: callers.Refusals = {
    "missing": ("MissingAuthenticationTokenException", 400),
    "malformed": ("IncompleteSignatureException", 400),
    "unknown_key": ("UnrecognizedClientException", 400),
    "mismatch": ("InvalidSignatureException", 400),
    "expired": ("InvalidSignatureException", 400),
    "wrong_service": ("InvalidSignatureException", 400),
}

Params = Mapping[str, object]
Item = TypeVar("Item")


class LogsService:
    """Answers the requests that are signed for it."""

    def __init__(
        self, kept: logs.Logs, *, known: callers.Callers, clock: deadline.Clock = deadline.SYSTEM_CLOCK
    ) -> None:
        self._logs = kept
        self._callers = known
        self._clock = clock
        self._operations: Mapping[str, Callable[[Params], Params | None]] = {
            "CreateLogGroup": self._create_group,
            "DeleteLogGroup": self._delete_group,
            "DescribeLogGroups": self._describe_groups,
            "PutRetentionPolicy": self._put_retention,
            "DeleteRetentionPolicy": self._delete_retention,
            "CreateLogStream": self._create_stream,
            "DeleteLogStream": self._delete_stream,
            "DescribeLogStreams": self._describe_streams,
            "PutLogEvents": self._put_events,
            "GetLogEvents": self._get_events,
            "FilterLogEvents": self._filter_events,
            "ListTagsForResource": self._list_tags,
            "TagResource": self._tag,
            "UntagResource": self._untag,
        }

    def answer(self, request: http1.Request, body: bytes) -> httpd.Reply:
        """The reply to a request."""
        try:
            content, status = self._answer(request, body), 200
        except faults.Fault as fault:
            content, status = {"__type": fault.error_type, "message": fault.message}, fault.status
        except (errors.VmnestError, OSError) as error:
            _LOG.warning("logs failed: %s", error)
            told = f"The local cloud failed: {error}"
            content, status = {"__type": "ServiceUnavailableException", "message": told}, 500
        except Exception:  # the last line of a call: the daemon goes on
            _LOG.exception("logs failed")
            content, status = {"__type": "ServiceUnavailableException", "message": "Internal error"}, 500
        return httpd.Reply(status, [_JSON, (names.REQUEST_ID_HEADER, str(uuid.uuid4()))], json.dumps(content).encode())

    def _answer(self, request: http1.Request, body: bytes) -> Params:
        self._callers.check(request, body, service=SERVICE, refusals=_SIGNATURE_ERRORS)
        name = (http1.first(request.fields, "x-amz-target") or "").removeprefix(TARGET)
        operation = self._operations.get(name)
        if operation is None or request.method != "POST" or request.target != "/":
            raise faults.Fault(
                f"The local cloud's logs do not have {name[:60] or 'that'}; they have: "
                f"{', '.join(sorted(self._operations))}.",
                error_type="UnknownOperationException",
                status=400,
            )
        try:
            params = json.loads(body or b"{}")
        except (ValueError, RecursionError):
            params = None
        if not isinstance(params, dict):
            raise faults.Fault("The body is no JSON object.", error_type="SerializationException", status=400)
        return operation(params) or {}

    # -- groups --------------------------------------------------------------------------------------------------------

    def _create_group(self, params: Params) -> None:
        self._logs.create_group(_group(params), tags=_tags(params))

    def _delete_group(self, params: Params) -> None:
        self._logs.delete_group(_group(params))

    def _describe_groups(self, params: Params) -> Params:
        prefix, pattern = _text(params, "logGroupNamePrefix") or "", _text(params, "logGroupNamePattern") or ""
        if prefix and pattern:
            raise _invalid("logGroupNamePrefix and logGroupNamePattern cannot both be given.")
        found = [
            (group, size)
            for group, size in self._logs.groups()
            if group.name.startswith(prefix) and pattern.lower() in group.name.lower()
        ]
        chosen, token = _page(found, params, key=lambda item: item[0].name)
        return {"logGroups": [_describe_group(*item) for item in chosen], **token}

    def _put_retention(self, params: Params) -> None:
        days = _number(params, "retentionInDays")
        if days not in RETENTIONS:
            raise _invalid(f"retentionInDays must be one of {sorted(RETENTIONS)}.")
        self._logs.set_retention(_group(params), days)

    def _delete_retention(self, params: Params) -> None:
        self._logs.set_retention(_group(params), None)

    def _list_tags(self, params: Params) -> Params:
        return {"tags": dict(self._logs.group(_group_of_arn(params)).tags)}

    def _tag(self, params: Params) -> None:
        group = self._logs.group(_group_of_arn(params))
        self._logs.set_tags(group.name, {**group.tags, **_tags(params)})

    def _untag(self, params: Params) -> None:
        group = self._logs.group(_group_of_arn(params))
        keys = _texts(params, "tagKeys")
        self._logs.set_tags(group.name, {key: value for key, value in group.tags.items() if key not in keys})

    # -- streams -------------------------------------------------------------------------------------------------------

    def _create_stream(self, params: Params) -> None:
        self._logs.create_stream(_group(params), _stream(params))

    def _delete_stream(self, params: Params) -> None:
        self._logs.delete_stream(_group(params), _stream(params))

    def _describe_streams(self, params: Params) -> Params:
        group = self._logs.group(_group(params))
        prefix = _text(params, "logStreamNamePrefix") or ""
        by_time = (_text(params, "orderBy") or "LogStreamName") == "LastEventTime"
        if prefix and by_time:
            raise _invalid("Cannot order by LastEventTime with a logStreamNamePrefix.")
        found = [stream for stream in self._logs.streams(group.name) if stream.name.startswith(prefix)]
        is_descending = params.get("descending") is True
        if not by_time:
            chosen, token = _page(found, params, key=lambda stream: stream.name, is_descending=is_descending)
            return {"logStreams": [_describe_stream(group, stream) for stream in chosen], **token}
        found.sort(key=lambda stream: (stream.facts.last or 0, stream.name), reverse=is_descending)
        # This order may change between two pages: the token is a number.
        numbered, token = _page(list(enumerate(found, 1)), params, key=lambda item: f"{item[0]:08d}")
        return {"logStreams": [_describe_stream(group, stream) for _, stream in numbered], **token}

    # -- events --------------------------------------------------------------------------------------------------------

    def _put_events(self, params: Params) -> Params:
        events = _events(params)
        now = int(self._clock.time() * 1000)
        too_old = sum(1 for when, _ in events if when < now - _OLDEST_MS)
        too_new = next((index for index, (when, _) in enumerate(events) if when > now + _NEWEST_MS), len(events))
        self._logs.put(_group(params), _stream(params), events[too_old:too_new])
        rejected: dict[str, int] = {}
        if too_old:
            rejected["tooOldLogEventEndIndex"] = too_old
        if too_new < len(events):
            rejected["tooNewLogEventStartIndex"] = too_new
        told: dict[str, object] = {"rejectedLogEventsInfo": rejected} if rejected else {}
        return {"nextSequenceToken": str(now), **told}

    def _get_events(self, params: Params) -> Params:
        group, name = _group(params), _stream(params)
        limit = _limit(params, most=MAX_BATCH_EVENTS)
        token = _text(params, "nextToken")
        at = None if token is None else _parse_token(token)
        backward = at is not None and at[0] == "b"
        from_head = not backward and (at is not None or params.get("startFromHead") is True)
        after, until = _first(params), _end(params)
        if at is not None and backward:
            until = min(until, at[1:])
        elif at is not None:
            after = max(after, at[1:])
        most = {"most" if from_head else "last": limit}
        events = self._logs.events(group, name, after=after, until=until, **most)
        chosen = _fitting(events if from_head else events[::-1], limit, size=_size)
        chosen = chosen if from_head else chosen[::-1]
        # Whoever has read to the end asks by the same token again, and finds what is new.
        here = (at[1], at[2]) if at is not None else (0, 0)
        first, last = (chosen[0].place, chosen[-1].place) if chosen else (here, here)
        return {
            "events": [
                {"timestamp": each.time, "message": each.message, "ingestionTime": each.came} for each in chosen
            ],
            "nextForwardToken": _build_token("f", last),
            "nextBackwardToken": _build_token("b", first),
        }

    def _filter_events(self, params: Params) -> Params:
        group = _group(params)
        wanted, prefix = _texts(params, "logStreamNames"), _text(params, "logStreamNamePrefix")
        if wanted and prefix is not None:
            raise _invalid("logStreamNames and logStreamNamePrefix cannot both be given.")
        streams = [stream.name for stream in self._logs.streams(group)]
        for name in wanted:
            if name not in streams:
                raise logs.no_such("log stream")
        pattern = _text(params, "filterPattern")
        matches = parse_pattern(pattern) if pattern else None
        # One more than an answer has: then there is another page.
        most = None if pattern else _limit(params, most=MAX_BATCH_EVENTS) + 1
        until = _end(params, is_within=True)
        searched = [name for name in streams if (name in wanted if wanted else name.startswith(prefix or ""))]
        found = [
            (event, name)
            for name in searched
            for event in self._logs.events(group, name, after=_first_on_page(params, name), until=until, most=most)
            if matches is None or matches(event.message)
        ]
        found.sort(key=lambda item: (item[0].time, item[1], item[0].number))
        chosen, token = _page(found, params, key=_key_of_found, most=MAX_BATCH_EVENTS, size=lambda item: _size(item[0]))
        return {
            "events": [
                {
                    "logStreamName": name,
                    "timestamp": event.time,
                    "message": event.message,
                    "ingestionTime": event.came,
                    "eventId": _event_id(name, event),
                }
                for event, name in chosen
            ],
            "searchedLogStreams": [],
            **token,
        }


# -- answers -----------------------------------------------------------------------------------------------------------


def _describe_group(group: logs.Group, size: int) -> Params:
    retention = {} if group.retention_days is None else {"retentionInDays": group.retention_days}
    return {
        "logGroupName": group.name,
        "creationTime": group.created,
        "metricFilterCount": 0,
        "arn": f"{group.arn}:*",
        "logGroupArn": group.arn,
        "logGroupClass": "STANDARD",
        "storedBytes": size,
        **retention,
    }


def _describe_stream(group: logs.Group, stream: log_files.Stream) -> Params:
    facts = stream.facts
    times = {
        "firstEventTimestamp": facts.first,
        "lastEventTimestamp": facts.last,
        "lastIngestionTime": facts.came,
    }
    return {
        "logStreamName": stream.name,
        "creationTime": stream.created,
        "arn": f"{group.arn}:log-stream:{stream.name}",
        "uploadSequenceToken": str(facts.next_number),
        "storedBytes": 0,  # as AWS: for streams it is no longer told
        **{name: value for name, value in times.items() if value is not None},
    }


def _event_id(stream: str, event: log_files.Event) -> str:
    # Digits, as AWS's; the same event has the same one.
    return f"{event.time:014d}{_number_of(stream):016d}{event.number:010d}"


@functools.lru_cache(maxsize=256)
def _number_of(stream: str) -> int:
    return uuid.uuid5(uuid.NAMESPACE_OID, stream).int % 10**16


def _key_of_found(item: tuple[log_files.Event, str]) -> str:
    event, name = item
    return f"{event.time:014d}\0{name}\0{event.number:012d}"  # NUL: no name has it


def _first(params: Params) -> log_files.Place:
    """The place that the events since ``startTime`` are behind."""
    start = params.get("startTime")
    return (start, -1) if isinstance(start, int) else log_files.BEGINNING


def _end(params: Params, *, is_within: bool = False) -> log_files.Place:
    """The place that the events until ``endTime`` are before; that time itself is within for one operation only."""
    end = params.get("endTime")
    return (end + is_within, -1) if isinstance(end, int) else _NEVER


def _first_on_page(params: Params, stream: str) -> log_files.Place:
    """A place that a stream's events of the page that is asked for are behind; see ``_key_of_found``."""
    token = _text(params, "nextToken")
    time, _, rest = ("" if token is None else _parse_page_token(token)).partition("\0")
    name, _, number = rest.rpartition("\0")
    if not (time.isdecimal() and number.isdecimal()):
        return _first(params)
    return max(_first(params), (int(time), int(number) if name == stream else -1))


def _size(event: log_files.Event) -> int:
    return len(event.raw) + _EVENT_OVERHEAD


def _fitting(items: Sequence[Item], limit: int, *, size: Callable[[Item], int]) -> list[Item]:
    """As many as an answer may have; one at least."""
    chosen: list[Item] = []
    total = 0
    for item in items[:limit]:
        total += size(item)
        if chosen and total > MAX_ANSWER_BYTES:
            break
        chosen.append(item)
    return chosen


def _build_token(direction: str, place: tuple[int, int]) -> str:
    return f"{direction}/{place[0]}.{place[1]}"


def _parse_token(token: str) -> tuple[str, int, int]:
    found = _TOKEN.fullmatch(token)
    if found is None:
        raise _invalid("The specified nextToken is invalid.")
    return found[1], int(found[2]), int(found[3])


def _page(
    items: Sequence[Item],
    params: Params,
    *,
    key: Callable[[Item], str],
    is_descending: bool = False,
    most: int = 50,
    size: Callable[[Item], int] = lambda item: 0,
) -> tuple[list[Item], dict[str, str]]:
    """The items, ordered by their keys, of the page that is asked for, and the token of the next one."""
    ordered = items[::-1] if is_descending else items
    token = _text(params, "nextToken")
    after = None if token is None else _parse_page_token(token)
    if after is None:
        rest = list(ordered)
    else:
        rest = [item for item in ordered if (key(item) < after if is_descending else key(item) > after)]
    chosen = _fitting(rest, _limit(params, most=most), size=size)
    if len(chosen) == len(rest):
        return chosen, {}
    return chosen, {"nextToken": base64.urlsafe_b64encode(key(chosen[-1]).encode("utf-8", "replace")).decode()}


def _parse_page_token(token: str) -> str:
    try:
        return base64.b64decode(token.encode("ascii"), altchars=b"-_", validate=True).decode()
    except ValueError:
        raise _invalid("The specified nextToken is invalid.") from None


# -- parameters --------------------------------------------------------------------------------------------------------


def _group(params: Params) -> str:
    name = _text(params, "logGroupName")
    if name is None and _text(params, "logGroupIdentifier") is not None:
        name = (_text(params, "logGroupIdentifier") or "").partition(":log-group:")[2] or _text(
            params, "logGroupIdentifier"
        )
    return _checked(name, _GROUP, "logGroupName")


def _stream(params: Params) -> str:
    return _checked(_text(params, "logStreamName"), _STREAM, "logStreamName")


def _group_of_arn(params: Params) -> str:
    arn = _text(params, "resourceArn") or ""
    return _checked(arn.partition(":log-group:")[2].removesuffix(":*"), _GROUP, "resourceArn")


def _checked(value: str | None, pattern: re.Pattern[str], name: str) -> str:
    if value is None:
        raise _invalid(
            f"1 validation error detected: Value null at '{name}' failed to satisfy constraint: Member must not be null"
        )
    if not pattern.fullmatch(value):
        raise _invalid(
            f"1 validation error detected: Value '{value[:200]}' at '{name}' failed to satisfy constraint: "
            f"Member must satisfy regular expression pattern: {pattern.pattern}"
        )
    return value


def _events(params: Params) -> list[tuple[int, str]]:
    told = params.get("logEvents")
    if not isinstance(told, list) or not 1 <= len(told) <= MAX_BATCH_EVENTS:
        raise _invalid(f"logEvents must be a list of 1 to {MAX_BATCH_EVENTS} events.")
    events: list[tuple[int, str]] = []
    size = 0
    for each in told:
        when, message = (each.get("timestamp"), each.get("message")) if isinstance(each, dict) else (None, None)
        if isinstance(when, bool) or not isinstance(when, int) or not isinstance(message, str) or not message:
            raise _invalid("Each log event must have a timestamp and a message.")
        if when < 0 or when >= 1 << 53:
            raise _invalid("The timestamp of a log event is out of range.")
        size += len(message.encode("utf-8", "replace")) + _EVENT_OVERHEAD
        events.append((when, message))
    if size > MAX_BATCH_BYTES:
        raise _invalid(f"Upload too large: {size} bytes exceeds limit of {MAX_BATCH_BYTES}")
    if any(earlier[0] > later[0] for earlier, later in itertools.pairwise(events)):
        raise _invalid("Log events in a single PutLogEvents request must be in chronological order.")
    return events


def _tags(params: Params) -> dict[str, str]:
    told = params.get("tags")
    if told is None:
        return {}
    if not isinstance(told, dict) or len(told) > 50 or not all(isinstance(value, str) for value in told.values()):
        raise _invalid("tags must be a map of up to 50 texts.")
    return {str(key): str(value) for key, value in told.items()}


def _limit(params: Params, *, most: int) -> int:
    value = params.get("limit")
    if value is None:
        return most
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise _invalid(f"limit must be a number from 1 to {most}.")
    return value


def _text(params: Params, name: str) -> str | None:
    value = params.get(name)
    if value is not None and not isinstance(value, str):
        raise faults.Fault(f"{name} must be a text.", error_type="SerializationException", status=400)
    return value


def _number(params: Params, name: str) -> int:
    value = params.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise faults.Fault(f"{name} must be a number.", error_type="SerializationException", status=400)
    return value


def _texts(params: Params, name: str) -> list[str]:
    value = params.get(name)
    return [str(each) for each in value] if isinstance(value, list) else []


def _invalid(message: str) -> faults.Fault:
    return faults.Fault(message, error_type="InvalidParameterException", status=400)
