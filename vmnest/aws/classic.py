"""The protocols older than rest-json, by botocore's serializers, parsers and endpoint rules: query, ec2, JSON, XML.

Only botocore's public names are used, and none of its clients: the model is plain data that ``model`` reads, a request
comes out of ``serialize``, its host and the scope of its signature out of the service's rules, an answer goes through
``parsers``. What those are known to get wrong is put right here:

- A service may speak several protocols, and botocore prefers the newest; ours are pinned by a table.
- The parsers take a web page for an answer without members. So a body is looked at before it is parsed, and members
  that the model requires must be there.
- Their error parsers believe gateways; errors are read by ``xml_errors`` and ``shapes`` instead.
- botocore's validator prints values, secret ones too. Parameters are checked by ``constraints``, as those of rest-json.
- Rules know no scope for a configured endpoint of a global service: it keeps that of the service's own host.

A service with manners of its own (S3) overrides ``Codec``'s hooks: ``adapt``, ``prepare``, ``finish``, ``complete``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlencode

import botocore.awsrequest
import botocore.endpoint_provider
import botocore.exceptions
import botocore.model
import botocore.parsers
import botocore.serialize
import botocore.utils

from .. import errors
from . import codec, model, policies, retries, shapes, xml_errors

# Those that vmnest speaks, in the order of preference. Not botocore's order: its CBOR has no test double.
PROTOCOLS = ("query", "ec2", "json", "rest-xml")
_JSON = "json"
# What the parsers raise over answers that are not what the model says.
_PARSER_FAILURES = (
    botocore.parsers.ResponseParserError,
    *(ArithmeticError, AttributeError, LookupError, NameError, RecursionError, TypeError, ValueError),
)
# Each of its parts ends where the next one begins, so that no answer makes it go back and forth.
_XML = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*\?>\s*)?(?:<!--(?:(?!-->).)*-->\s*)*<(?!!doctype\s+html|html[\s>])[A-Za-z]",
    re.IGNORECASE | re.DOTALL,
)
_ROOT = re.compile(rb"<(?:[A-Za-z_][\w.-]*:)?([A-Za-z_][\w.-]*)")
_SIGNED_AS = frozenset({"sigv4"})


class Operation(NamedTuple):
    """What the caller must know of an operation: see ``codec.Operation``."""

    name: str
    is_idempotent: bool
    is_look: bool
    token_member: str | None


class Codec:
    """One classic service. Safe for threads; the data behind it is loaded once in a process."""

    def __init__(self, service: str, *, variant: codec.Variant) -> None:
        self.service = service
        self._variant = variant
        self._data = _load(service, self.adapt)
        self.language = "JSON" if self._data.protocol == _JSON else "XML"

    # -- what a service may have its own way ---------------------------------------------------------------------------

    @staticmethod
    def adapt(raw: dict[str, Any]) -> None:
        """Change the model before anything is made of it."""

    def prepare(self, name: str, params: dict[str, Any]) -> dict[str, Any]:
        """The parameters to serialize, after those given were checked against the model."""
        return params

    def finish(self, name: str, params: Mapping[str, Any], request: codec.Request) -> codec.Request:
        """The request to send: what was serialized, with what the model does not say."""
        return request

    def complete(self, name: str, answer: codec.Answer, result: dict[str, Any]) -> dict[str, Any]:
        """The result to return, out of what was parsed; shapes.AnswerMalformed if it cannot be one."""
        if self.service == policies.SERVICE:
            policies.decode(self._data.theirs.operation_model(name).output_shape, result)
        return result

    def status(self, name: str, answer: codec.Answer) -> int:
        return answer.status

    def other_region(self, request: codec.Request, answer: codec.Answer) -> str | None:
        return None

    # -- requests ------------------------------------------------------------------------------------------------------

    def operation(self, name: str) -> Operation:
        modelled = self._data.ours.operation(name)
        return Operation(
            name,
            is_idempotent=modelled.is_idempotent or retries.is_harmless_twice(name),
            is_look=modelled.is_look or retries.is_look(name),
            token_member=modelled.token_member,
        )

    def build(self, name: str, params: Mapping[str, object]) -> codec.Request:
        """A parameter that is None is absent; a ``codec.Body`` may stand where the model has a streamed payload."""
        ours, theirs = self._data.ours.operation(name), self._data.theirs.operation_model(name)
        if theirs.has_event_stream_output or theirs.has_event_stream_input:
            raise errors.UnsupportedError(f"{self.service} streams events in {name}, which vmnest cannot read")
        given, body = _without_body(ours, params)
        shapes.check(ours, given)
        given = self.prepare(name, given)
        made = self._data.serializer.serialize_to_request(given, theirs)
        request = codec.Request(
            method=made["method"],
            target=_target(made),
            headers=[(key, str(value)) for key, value in made["headers"].items()],
            body=_encoded(made["body"]) if body is None else body,
            rule_params=_rule_params(theirs, given, host_prefix=made.get("host_prefix")),
        )
        return self.finish(name, given, request)

    def locate(self, request: codec.Request, *, endpoint: str | None, region: str) -> codec.Place:
        """By the service's rules.

        Raises:
            errors.UsageError: the rules have no host for this (a region that cannot be one, for example).
        """
        variant = self._variant if endpoint is None else codec.Variant()
        found = self._resolve(request, endpoint=endpoint, region=region, variant=variant)
        scheme = _scheme(found)
        if scheme is None and endpoint is not None:
            scheme = _scheme(self._resolve(request, endpoint=None, region=region, variant=variant))
        scheme = scheme or {}
        base = found.url.rstrip("/")
        prefix = request.rule_params.get(_HOST_PREFIX)
        if prefix and endpoint is None:
            base = base.replace("://", f"://{prefix}", 1)
        return codec.Place(
            base, scheme.get("signingRegion") or region, scheme.get("signingName") or self._data.ours.signing_name
        )

    def _resolve(self, request: codec.Request, *, endpoint: str | None, region: str, variant: codec.Variant) -> Any:
        wanted: dict[str, object] = {
            "AWS::Region": region,
            "AWS::UseFIPS": variant.is_fips,
            "AWS::UseDualStack": variant.is_dualstack,
            "SDK::Endpoint": endpoint,
            # A host name in front of an address that somebody configured leads nowhere.
            "AWS::S3::ForcePathStyle": endpoint is not None,
        }
        params = {key: value for key, value in request.rule_params.items() if key in self._data.rule_params}
        for key, builtin in self._data.rule_params.items():
            if key not in params and wanted.get(builtin or "") is not None:
                params[key] = wanted[builtin or ""]
        try:
            return self._data.rules.resolve_endpoint(**params)
        except botocore.exceptions.EndpointProviderError as error:
            raise errors.UsageError(f"{self.service} cannot be called like this in {region}: {error}") from error

    # -- answers -------------------------------------------------------------------------------------------------------

    def is_own_body(self, body: bytes) -> bool:
        return body.lstrip()[:1] == b"{" if self._data.protocol == _JSON else _XML.match(body) is not None

    def read(self, name: str, answer: codec.Answer) -> dict[str, object]:
        shape = self._data.theirs.operation_model(name).output_shape
        if self._data.protocol in {"query", "ec2"}:
            _check_root(answer.body)
        try:
            result: dict[str, Any] = self._data.parser.parse(
                {
                    "status_code": answer.status,
                    "headers": botocore.awsrequest.HeadersDict(answer.headers.items()),
                    "body": answer.body,
                    "context": {"operation_name": name},
                },
                shape,
            )
        except _PARSER_FAILURES as error:
            raise shapes.AnswerMalformed(f"{type(error).__name__} while it was read") from error
        result.pop("ResponseMetadata", None)
        missing = [] if shape is None else sorted(set(shape.required_members) - result.keys())
        if missing:
            raise shapes.AnswerMalformed(f"it has no {', '.join(missing)}")
        return self.complete(name, answer, result)

    def read_error(self, name: str, answer: codec.Answer) -> shapes.ErrorAnswer:
        if self._data.protocol == _JSON:
            return shapes.parse_error(answer.headers, answer.status, answer.body)
        return xml_errors.parse(answer.body)

    def is_page(self, name: str, answer: codec.Answer) -> bool:
        if self._data.ours.operation(name).method == "HEAD":
            return False  # never has a body
        return not self.is_own_body(answer.body) or self.read_error(name, answer).error_type is None


# -- a service's data --------------------------------------------------------------------------------------------------

_HOST_PREFIX = "vmnest:host-prefix"  # among the parameters for the rules; no rule has such a name


class _Data:
    """What is the same for all codecs of a service: its model, twice, and what botocore makes of it."""

    def __init__(self, service: str, raw: dict[str, Any], rules: dict[str, Any], partitions: dict[str, Any]) -> None:
        metadata = raw["metadata"]
        spoken = metadata.get("protocols") or [metadata["protocol"]]
        self.protocol = next((one for one in PROTOCOLS if one in spoken), None)
        if self.protocol is None:
            raise errors.UnsupportedError(f"{service} speaks {', '.join(spoken)} only, which vmnest does not")
        self.ours = model.Model(service, raw, is_strict=False)
        self.theirs = botocore.model.ServiceModel(raw, service)
        self.serializer = botocore.serialize.create_serializer(self.protocol, include_validation=False)
        self.parser = _parsers().create_parser(self.protocol)
        self.rules = botocore.endpoint_provider.EndpointProvider(rules, partitions)
        self.rule_params: dict[str, str | None] = {
            name: one.get("builtIn") for name, one in rules["parameters"].items()
        }


@functools.cache
def _load(service: str, adapt: Callable[[dict[str, Any]], None]) -> _Data:
    raw = model.read_data(service, "service-2")
    adapt(raw)
    return _Data(service, raw, model.read_data(service, "endpoint-rule-set-1"), model.read_partitions())


def load(service: str, *, variant: codec.Variant) -> Codec:
    """The codec of a classic service.

    Raises:
        errors.DependencyMissingError: botocore is absent, or too old.
    """
    return Codec(service, variant=variant)


# -- parts -------------------------------------------------------------------------------------------------------------


def _parsers() -> Any:
    factory = botocore.parsers.ResponseParserFactory()
    factory.set_parser_defaults(timestamp_parser=_timestamp)
    return factory


def _timestamp(value: Any) -> datetime:
    """In UTC; botocore itself takes this machine's zone for some forms, and for what names none."""
    found: datetime = botocore.utils.parse_timestamp(value)
    return found.replace(tzinfo=timezone.utc) if found.tzinfo is None else found.astimezone(timezone.utc)


def _without_body(operation: model.Operation, params: Mapping[str, object]) -> tuple[dict[str, Any], codec.Body | None]:
    """The parameters with the token filled in, and the body that is not in memory taken out."""
    given: dict[str, Any] = {name: value for name, value in params.items() if value is not None}
    if operation.token_member is not None:
        given.setdefault(operation.token_member, shapes.new_client_token())
    payload = None if operation.input is None else operation.input.payload
    body = given.get(payload) if payload is not None else None
    if payload is None or not isinstance(body, codec.Body):
        return given, None
    return {**given, payload: b""}, body


def _target(made: Mapping[str, Any]) -> str:
    # An endpoint with a path is called at that path as it is, as by botocore.
    path, query = "" if made["url_path"] == "/" else str(made["url_path"]), made["query_string"]
    if not query:
        return path
    return f"{path}{'&' if '?' in path else '?'}{botocore.utils.percent_encode_sequence(query)}"


def _encoded(body: object) -> bytes:
    if isinstance(body, dict):
        return urlencode(body, doseq=True).encode()
    return body.encode() if isinstance(body, str) else bytes(body or b"")  # type: ignore[call-overload]


def _rule_params(theirs: Any, given: Mapping[str, Any], *, host_prefix: str | None) -> Mapping[str, object]:
    found: dict[str, object] = {one.name: one.value for one in theirs.static_context_parameters}
    for one in theirs.context_parameters:
        if one.member_name in given:
            found.setdefault(one.name, given[one.member_name])
    if host_prefix:
        found[_HOST_PREFIX] = host_prefix
    return MappingProxyType(found)


def _scheme(found: Any) -> Mapping[str, str] | None:
    """The scope of the signature that the rules name; None if they name none."""
    schemes = found.properties.get("authSchemes") or ()
    fitting = [scheme for scheme in schemes if scheme["name"] in _SIGNED_AS]
    if schemes and not fitting:
        raise errors.UnsupportedError(f"{found.url} wants signatures that vmnest cannot make")
    return fitting[0] if fitting else None


def _check_root(body: bytes) -> None:
    root = _ROOT.search(body)
    if root is None or not root[1].endswith(b"Response"):
        shown = "" if root is None else f", but {root[1].decode('ascii', 'replace')}"
        raise shapes.AnswerMalformed(f"its root is no response{shown}")
