"""The control plane on the wire: who asks, for what, with which parameters; and the answer's form.

The signature is verified over the raw request line, before anything else is looked at. Operations are found in
botocore's models, for the three families of URIs on this one listener; what an operation does is in ``operations``.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import formatdate

from .. import rendezvous
from ..aws import shapes, signing
from ..wire import http1, names
from . import bounds, callers, faults, operations
from .httpd import Reply

_LOG = logging.getLogger(__name__)

SERVICE = "lambda"
MODELS = ("lambda-microvms", "lambda-core")

_SIGNATURE_ERRORS: callers.Refusals = {
    "missing": ("MissingAuthenticationTokenException", 403),
    "malformed": ("IncompleteSignatureException", 403),
    "unknown_key": ("UnrecognizedClientException", 403),
    "mismatch": ("InvalidSignatureException", 403),
    "expired": ("InvalidSignatureException", 403),
    "wrong_service": ("InvalidSignatureException", 403),
}


@dataclass(frozen=True)
class Own:
    """The daemon's answer to a call of its own; ``then`` is called once it is sent."""

    content: Mapping[str, object]
    then: Callable[[], None] | None = None


OwnRoute = Callable[[], Own]


class ControlPlane:
    """Answers signed requests.

    Args:
        cloud: What operations work on.
        keys: The one key pair that requests are signed with.
        own_routes: (method, path) → what answers it, for the daemon's own calls beside AWS's.
    """

    def __init__(
        self,
        cloud: operations.Cloud,
        *,
        keys: rendezvous.Keys,
        own_routes: Mapping[tuple[str, str], OwnRoute],
    ) -> None:
        self._cloud = cloud
        self._callers = callers.Callers(keys, clock=cloud.clock)
        self._own_routes = own_routes
        self._models = [shapes.load(name) for name in MODELS]

    def answer(self, request: http1.Request, body: bytes) -> Reply:
        """The reply to a request."""
        then = None
        try:
            verified = self._callers.check(request, body, service=SERVICE, refusals=_SIGNATURE_ERRORS)
            own = self._own_routes.get((request.method, request.target))
            if own is None:
                wire = self._dispatch(request, body, verified)
            else:
                answer = own()
                wire, then = shapes.WireAnswer(200, _JSON, json.dumps(answer.content).encode()), answer.then
        except faults.Fault as fault:
            wire = _error(fault, model=None)
        except Exception:  # the last line of a call: the daemon goes on
            _LOG.exception("%s %s failed", request.method, request.target)
            wire = _error(faults.internal(), model=None)
        head = [
            ("Date", formatdate(self._cloud.clock.time(), usegmt=True)),
            (names.REQUEST_ID_HEADER, str(uuid.uuid4())),
        ]
        return Reply(wire.status, [*head, *wire.headers], wire.body, then=then)

    def _dispatch(self, request: http1.Request, body: bytes, verified: signing.Verified) -> shapes.WireAnswer:
        path, _, query = request.target.partition("?")
        found = shapes.match(self._models, request.method, path)
        if found is None:
            raise faults.unknown_operation(f"{request.method} {path}")
        model, operation, path_params = found
        try:
            params, violations = shapes.parse_request(
                operation, path_params, raw_query=query, headers=request.fields, body=body
            )
            violations += bounds.find_violations(operation.name, params)
            if violations:
                raise faults.validation(shapes.violations_message(violations))
            call = operations.Call(params, local_options=_local_options(request, verified))
            return shapes.build_answer(operation, _operation(operation.name)(self._cloud, call))
        except shapes.RequestMalformed as malformed:
            return shapes.build_error(malformed.error_type, malformed.status, malformed.message)
        except faults.Fault as fault:
            return _error(fault, model=model)


_JSON = [("Content-Type", "application/json")]


def _operation(name: str) -> operations.Operation:
    operation = operations.OPERATIONS.get(name)
    if operation is None:
        raise faults.validation(f"The local cloud does not have {name}.")
    return operation


def _local_options(request: http1.Request, verified: signing.Verified) -> str | None:
    text = http1.first(request.fields, names.LOCAL_OPTIONS_HEADER)
    if text is not None and names.LOCAL_OPTIONS_HEADER not in verified.signed_headers:
        raise faults.validation(f"{names.LOCAL_OPTIONS_HEADER} must be signed")
    return text


def _error(fault: faults.Fault, *, model: shapes.Model | None) -> shapes.WireAnswer:
    return shapes.build_error(fault.error_type, fault.status, fault.message, members=fault.members, model=model)
