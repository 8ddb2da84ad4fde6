"""Members of the service's answers, taken out with their types checked.

The codec has checked what the model requires; what is optional, unmodelled or of a local cloud that is newer than we
are is checked here, so that a surprise is an error of ours with a name, and no ``TypeError`` further up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TypeVar

from .. import errors
from ..aws.service import Service
from ..deadline import Deadline

Answer = Mapping[str, object]
_T = TypeVar("_T")

NOTHING: Answer = MappingProxyType({})


def take(answer: Answer, name: str, kind: type[_T], *, operation: str) -> _T:
    """The member, which must be there and of that type."""
    value = answer.get(name)
    if not isinstance(value, kind):
        raise _surprise(operation, name, kind)
    return value


def find(answer: Answer, name: str, kind: type[_T], *, operation: str) -> _T | None:
    """The member, or None if it is absent."""
    value = answer.get(name)
    if value is not None and not isinstance(value, kind):
        raise _surprise(operation, name, kind)
    return value


def texts(answer: Answer, name: str, *, operation: str) -> tuple[str, ...]:
    """A list of texts; empty if it is absent."""
    return tuple(str(value) for value in find(answer, name, list, operation=operation) or ())


def pages(
    service: Service,
    operation: str,
    params: Mapping[str, object],
    *,
    deadline: Deadline,
    items: str = "items",
    sent: str = "nextToken",
    received: str = "nextToken",
) -> Iterator[Mapping[str, object]]:
    """The items of all pages. A page may be empty while others follow; the last one has no token.

    Args:
        service: Who is asked.
        operation: For what.
        params: Its parameters.
        deadline: By when.
        items: The member of an answer that has them.
        sent: The parameter that takes a token.
        received: The member of an answer that has one.

    Raises:
        errors.AnswerInvalidError: a token came twice, so that there would be no end.
    """
    token: str | None = None
    seen: set[str] = set()
    while True:
        answer = service.call(operation, {**params, sent: token} if token else params, deadline=deadline)
        for item in find(answer, items, list, operation=operation) or ():
            if isinstance(item, Mapping):
                yield item
        token = find(answer, received, str, operation=operation)
        if not token:
            return
        if token in seen:
            raise errors.AnswerInvalidError(
                f"{operation}: the pages go round in a circle", operation=operation, status=200
            )
        seen.add(token)


def _surprise(operation: str, name: str, kind: type) -> errors.AnswerInvalidError:
    wanted = {str: "text", int: "number", datetime: "time", list: "list", dict: "object"}.get(kind, kind.__name__)
    return errors.AnswerInvalidError(
        f"{operation}: the answer's {name} is no {wanted}", operation=operation, status=200
    )
