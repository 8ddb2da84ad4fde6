"""Client tokens of image operations: a call that is repeated gets the answer of the first time, and does nothing."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Mapping

from .. import errors
from . import faults, image_store

_LOG = logging.getLogger(__name__)

TOKEN = "clientToken"  # noqa: S105 - a member's name
# May be secret, and must not outlive their image. Who repeats a call sends them again: not kept, they are answered.
_VARIABLES = "environmentVariables"

Wire = Mapping[str, object]


class Answers:
    """What was answered, for ever, as on AWS: also when the image is gone. Thread-safe."""

    def __init__(self, store: image_store.Store) -> None:
        self._store = store
        self._lock = threading.Lock()  # one such call at a time: two with the same token must not both act

    def once(self, operation: str, params: Wire, act: Callable[[], Wire]) -> Wire:
        """The answer of ``act``; for a client token that was used, the answer of that time, and nothing is done.

        Raises:
            faults.Fault: the client token was used with other parameters.
        """
        token = params.get(TOKEN)
        if token is None:
            return act()
        fingerprint = _fingerprint(params)
        with self._lock:
            known = self._store.answer(operation, str(token))
            if known is None:
                answer = act()
                self._keep(operation, params, fingerprint=fingerprint, answer=answer)
                return answer
        if known[0] != fingerprint:
            raise faults.conflict("The client token was used before, with other parameters.")
        return {**_sent(params), **known[1]}

    def _keep(self, operation: str, params: Wire, *, fingerprint: str, answer: Wire) -> None:
        kept = {name: value for name, value in answer.items() if _sent(params).get(name, ...) != value}
        try:
            self._store.keep_answer(operation, str(params[TOKEN]), fingerprint=fingerprint, answer=kept)
        except errors.LocalCloudError:
            # It has happened, and the answer to this very call is worth more than that to another one.
            _LOG.exception("the answer to %s could not be noted", operation)


def _sent(params: Wire) -> Wire:
    """The variables of the call, as they are answered."""
    return {_VARIABLES: params[_VARIABLES]} if _VARIABLES in params else {}


def _fingerprint(params: Wire) -> str:
    """Equal for equal parameters, and tells nothing of them."""
    content = json.dumps({name: value for name, value in params.items() if name != TOKEN}, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()
