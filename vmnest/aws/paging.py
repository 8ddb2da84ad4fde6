"""How the answers of a listing follow one another, by the paginators of botocore's models. Pure but for reading those.

A page may be empty and another one follow; what says that there is more is the operation's flag (``IsTruncated``) where
it has one, else the token. A service that hands out the same token again would be asked for ever: that is an error.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from .. import errors
from . import model

_NAME = re.compile(r"[A-Za-z0-9_]+")


class Broken(ValueError):  # noqa: N818 - a finding about the answer; the caller makes the error of it
    """An answer after which nobody knows what to ask for next."""


class Paginator:
    """The way through the pages of one operation. Has no state: see ``Walk``."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.inputs = _listed(raw["input_token"])
        self.outputs = _listed(raw["output_token"])
        self.flag: str | None = raw.get("more_results")


class Walk:
    """One walk through the pages. ``next_params`` after each answer."""

    def __init__(self, paginator: Paginator) -> None:
        self._paginator = paginator
        self._seen: set[tuple[object, ...]] = set()

    def next_params(self, answer: Mapping[str, object]) -> dict[str, object] | None:
        """What to ask for next, beside the call's own parameters; None at the end.

        Raises:
            Broken: there is more, and no token or an old one.
        """
        flag = self._paginator.flag
        if flag is not None and not answer.get(flag):
            return None
        tokens = tuple(answer.get(name) or None for name in self._paginator.outputs)
        if not any(tokens):
            if flag is not None:
                raise Broken(f"it is one of several pages ({flag}), and does not say how to get the next")
            return None
        if tokens in self._seen:
            raise Broken("it names the same next page as an earlier one")
        self._seen.add(tokens)
        return {name: token for name, token in zip(self._paginator.inputs, tokens, strict=True) if token is not None}


def load(service: str, operation: str) -> Paginator:
    """The paginator of an operation.

    Raises:
        errors.UnsupportedError: the model has none, or one that says more than names of members.
    """
    raw = _read(service).get(operation)
    if raw is None or not all(_NAME.fullmatch(name) for name in _listed(raw["output_token"])):
        raise errors.UnsupportedError(f"{service}: {operation} has no pages that vmnest can turn")
    return Paginator(raw)


@functools.cache
def _read(service: str) -> Mapping[str, Any]:
    pagination: Mapping[str, Any] = model.read_data(service, "paginators-1")["pagination"]
    return pagination


def _listed(names: str | list[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
