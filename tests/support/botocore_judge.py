"""What botocore's own clients would send: a second opinion on requests, hosts and the scopes of signatures."""

from __future__ import annotations

import functools
import re
from typing import Any, NamedTuple

import boto3
from botocore.config import Config

_SCOPE = re.compile(r"Credential=AKIDJUDGE/[0-9]{8}/([^/]+)/([^/]+)/aws4_request")


class Sent(NamedTuple):
    """A request as a client was about to send it. ``headers`` are in lower case, without those of the client itself."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes
    region: str
    signing_name: str


class _StopError(Exception):
    pass


@functools.cache
def client(service: str, region: str, *, fips: bool = False, dualstack: bool = False, url: str | None = None) -> Any:
    """A client that never sends."""
    session = boto3.Session(aws_access_key_id="AKIDJUDGE", aws_secret_access_key="x", region_name=region)
    config = Config(use_fips_endpoint=fips, use_dualstack_endpoint=dualstack, s3={"addressing_style": "auto"})
    return session.client(service, config=config, endpoint_url=url)


def sent(service: str, operation: str, params: dict[str, Any], *, region: str = "eu-west-1", **options: Any) -> Sent:
    """The request that a client makes of a call; ``operation`` as botocore's method is called."""
    made = client(service, region, **options)
    kept: list[Any] = []

    def stop(request: Any, **_: Any) -> None:
        kept.append(request)
        raise _StopError

    made.meta.events.register("before-send", stop)
    try:
        getattr(made, operation)(**params)
    except _StopError:
        pass
    finally:
        made.meta.events.unregister("before-send", stop)
    (request,) = kept
    headers = {key.lower(): _text(value) for key, value in request.headers.items()}
    scope = _SCOPE.search(headers["authorization"])
    assert scope is not None
    body = request.body or b""
    return Sent(
        request.method,
        request.url,
        headers,
        body.encode() if isinstance(body, str) else bytes(body),
        region=scope[1],
        signing_name=scope[2],
    )


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value
