"""What a service's protocol is to its caller: requests out of parameters, results and refusals out of answers.

``service`` makes attempts, signs and waits, and knows no protocol; a codec knows nothing else. Two kinds: rest-json by
``shapes``, which is all that the life of a sandbox needs and imports no botocore, and ``classic`` (XML, query, JSON)
by botocore's serializers. ``load`` chooses by the service's name.

A request is built once in a call and located for each attempt: the endpoint may change in between (a local cloud that
was started again, a bucket that lives in another region), the request never does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from . import model, shapes

if TYPE_CHECKING:
    from ..transport import Headers

__all__ = ["Answer", "Body", "Codec", "Operation", "Place", "Request", "RestJson", "Variant", "load"]

# Served by ``classic``; any other name is that of a rest-json model.
CLASSIC = frozenset({"cloudwatch", "ec2", "iam", "logs", "s3", "service-quotas", "sts"})


class Body:
    """A request's body that is not held in memory: opened anew for each attempt.

    Args:
        open: Called for each attempt; what it returns is read to its end.
        size: In bytes; sent as the Content-Length.
        sha256: Hex digest for the signature, or ``signing.UNSIGNED_PAYLOAD``.
    """

    __slots__ = ("open", "sha256", "size")

    def __init__(self, open: Callable[[], Iterable[bytes]], size: int, sha256: str) -> None:  # noqa: A002 - as in files
        self.open = open
        self.size = size
        self.sha256 = sha256


class Request(NamedTuple):
    """A request before it is located and signed.

    Attributes:
        method: In capitals.
        target: Path and query as they stand on the request line, behind whatever path the place has.
        headers: Without those of the body's length and the signature.
        body: Empty for none.
        rule_params: What the rules for endpoints want to know of the parameters (the bucket).
    """

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes | Body
    rule_params: Mapping[str, object] = MappingProxyType({})


class Place(NamedTuple):
    """Where a request goes (no slash at the end), and the scope of its signature."""

    base: str
    region: str
    signing_name: str


class Variant:
    """Which of a service's own hosts is wanted; without meaning where an endpoint is configured."""

    __slots__ = ("is_dualstack", "is_fips")

    def __init__(self, *, is_fips: bool = False, is_dualstack: bool = False) -> None:
        self.is_fips = is_fips
        self.is_dualstack = is_dualstack


class Answer(NamedTuple):
    """What came back. The body is empty where it is read as a stream."""

    status: int
    headers: Headers
    body: bytes


class Operation(Protocol):
    """What the caller must know of an operation."""

    @property
    def name(self) -> str:
        """As in the model."""

    @property
    def is_idempotent(self) -> bool:
        """Made twice, its effect is that of once."""

    @property
    def is_look(self) -> bool:
        """It changes nothing."""

    @property
    def token_member(self) -> str | None:
        """The member that makes a repeated request the same request."""


class Codec(Protocol):
    """One service's protocol. Safe for threads."""

    service: str
    language: str  # of bodies, for messages: JSON, XML

    def operation(self, name: str) -> Operation:
        """The operation of that name; errors.UnsupportedError if there is none."""

    def build(self, name: str, params: Mapping[str, object]) -> Request:
        """The request for a call; errors.RequestInvalidError if ``params`` break the model."""

    def locate(self, request: Request, *, endpoint: str | None, region: str) -> Place:
        """Where the request goes: to ``endpoint``, else to the service's own host for ``region``."""

    def status(self, name: str, answer: Answer) -> int:
        """The status that the answer should have had: S3 tells of some failures under 200."""

    def other_region(self, request: Request, answer: Answer) -> str | None:
        """The region that the service says the request should have been made for; asked once in a call."""

    def is_own_body(self, body: bytes) -> bool:
        """The body may be one of the service's, not a gateway's page. Content types prove nothing."""

    def read(self, name: str, answer: Answer) -> dict[str, object]:
        """The result in an answer of success; shapes.AnswerMalformed if it cannot be one."""

    def read_error(self, name: str, answer: Answer) -> shapes.ErrorAnswer:
        """What an error answer says; never fails."""

    def is_page(self, name: str, answer: Answer) -> bool:
        """An error answer that somebody else than the service wrote."""


class RestJson:
    """The protocol of lambda-microvms and lambda-core."""

    language = "JSON"

    def __init__(self, service: str) -> None:
        self.service = service
        self._model = model.load(service)

    def operation(self, name: str) -> model.Operation:
        return self._model.operation(name)

    def build(self, name: str, params: Mapping[str, object]) -> Request:
        return Request(*shapes.build_request(self._model.operation(name), params))

    def locate(self, request: Request, *, endpoint: str | None, region: str) -> Place:
        if endpoint is None:
            raise ValueError("services of this protocol are called at an endpoint that the caller knows")
        return Place(endpoint, region, self._model.signing_name)

    def status(self, name: str, answer: Answer) -> int:
        return answer.status

    def other_region(self, request: Request, answer: Answer) -> str | None:
        return None

    def is_own_body(self, body: bytes) -> bool:
        # Emulators call JSON HTML, gateways HTML JSON: only the body itself tells.
        return body.lstrip()[:1] == b"{"

    def read(self, name: str, answer: Answer) -> dict[str, object]:
        result: dict[str, object] = shapes.parse_answer(self._model.operation(name), answer.headers, answer.body)
        return result

    def read_error(self, name: str, answer: Answer) -> shapes.ErrorAnswer:
        return shapes.parse_error(answer.headers, answer.status, answer.body)

    def is_page(self, name: str, answer: Answer) -> bool:
        return not self.is_own_body(answer.body)


def load(service: str, *, variant: Variant | None = None) -> Codec:
    """The codec of a service.

    Raises:
        errors.DependencyMissingError: botocore is absent, or too old to know the service.
    """
    if service not in CLASSIC:
        return RestJson(service)
    model.require_botocore()
    from . import classic, s3_codec

    if service == s3_codec.SERVICE:
        return s3_codec.Codec(service, variant=variant or Variant())
    return classic.load(service, variant=variant or Variant())
