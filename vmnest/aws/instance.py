"""The role of the EC2 instance we run on, asked from its metadata service (IMDSv2).

botocore has this too, but sends it through ``HTTP_PROXY`` if there is one: the proxy would answer with its own
instance's role, or with a page, or hold every command up. A link-local address is on no other side of a proxy, so this
goes straight there, with a short timeout. Everything else is as botocore does it: its settings, its fallback to the
first version of the service where the second does not answer, its patience with a service that hands out old keys.
"""

from __future__ import annotations

import json
import re
import time
from datetime import datetime, timezone

from .. import errors, transport
from ..deadline import Deadline
from . import endpoint, values

DEFAULT_URL = "http://169.254.169.254/"
DEFAULT_URL_IPV6 = "http://[fd00:ec2::254]/"
_TOKEN_PATH = "latest/api/token"  # noqa: S105 - a path
_ROLE_PATH = "latest/meta-data/iam/security-credentials/"
_TOKEN_SECONDS = "21600"  # noqa: S105 - a lifetime
_ANSWER_BYTES = 65536
_ROLE_NAME = re.compile(r"[A-Za-z0-9_+=,.@-]{1,128}")
# While the service has an outage it hands out keys that end soon, or have ended; AWS asks its clients to go on with
# them and to ask again after a while. botocore asks a quarter of an hour before the end that it is told.
_AT_LEAST_SECONDS = 1200.0
_NO_TOKEN_THERE = {403, 404, 405}
_TOKEN = re.compile(r"[!-~]+")

REQUIRED = ("AccessKeyId", "SecretAccessKey", "Token", "Expiration")


class _NoMetadataService(Exception):  # noqa: N818 - a finding, which becomes the outcome
    """Something else answers at its address, or it does not work."""


class InstanceMetadata:
    """Fetches the keys of the instance's role; botocore's ``InstanceMetadataProvider`` calls it when they are needed.

    Args:
        url: Base URL of the metadata service.
        is_enabled: False if ``AWS_EC2_METADATA_DISABLED`` says so: nothing is sent then.
        timeout: Seconds for each request.
        attempts: How often a request without an answer is made.
        is_v1_allowed: The first version of the service may be asked if the second is not there.
    """

    def __init__(
        self,
        *,
        url: str = DEFAULT_URL,
        is_enabled: bool = True,
        timeout: float = 1.0,
        attempts: int = 1,
        is_v1_allowed: bool = True,
    ) -> None:
        self._url = endpoint.check(url, "AWS_EC2_METADATA_SERVICE_ENDPOINT") + "/"
        self._is_enabled = is_enabled
        self._timeout = timeout
        self._attempts = max(1, attempts)
        self._is_v1_allowed = is_v1_allowed
        # Without an environment there is no proxy.
        self._transport = transport.Transport(environ={})
        self.outcome = "not asked"

    def retrieve_iam_role_credentials(self) -> dict[str, str]:
        """The keys by botocore's names for them, empty if there are none; ``outcome`` then tells why."""
        if not self._is_enabled:
            self.outcome = "switched off by AWS_EC2_METADATA_DISABLED"
            return {}
        try:
            return self._retrieve()
        except _NoMetadataService as error:
            self.outcome = str(error)
            return {}
        except errors.TransportError as error:
            slow = isinstance(error, errors.ReadTimeoutError) or "time allowed" in error.message
            self.outcome = f"no answer within {self._timeout:g} s" if slow else "cannot be reached"
            return {}
        finally:
            self._transport.close()

    def _retrieve(self) -> dict[str, str]:
        token = self._fetch_token()
        if token is None and not self._is_v1_allowed:
            self.outcome = "gives no token"
            return {}
        status, body = self._get(_ROLE_PATH, token)
        role = body.decode("utf-8", "replace").strip().partition("\n")[0].strip()
        if status != 200 or not _ROLE_NAME.fullmatch(role):
            self.outcome = "has no role" if status in (200, 404) else f"answers {status}"
            return {}
        status, body = self._get(_ROLE_PATH + role, token)
        return self._read(status, body, role)

    def _read(self, status: int, body: bytes, role: str) -> dict[str, str]:
        try:
            answer = json.loads(body) if status == 200 else None
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or not all(isinstance(answer.get(name), str) for name in REQUIRED):
            reason = answer.get("Code") if isinstance(answer, dict) else None
            self.outcome = errors.quote(f"its role {role} gives no keys ({reason or f'HTTP {status}'})", limit=200)
            return {}
        self.outcome = f"role {role}"
        return {
            "role_name": role,
            "access_key": answer["AccessKeyId"],
            "secret_key": answer["SecretAccessKey"],
            "token": answer["Token"],
            "expiry_time": _end(answer["Expiration"]),
        }

    def _fetch_token(self) -> str | None:
        """A token for the second version; None if there is only the first."""
        try:
            status, body = self._send("PUT", _TOKEN_PATH, ("x-aws-ec2-metadata-token-ttl-seconds", _TOKEN_SECONDS))
        except errors.ReadTimeoutError:
            # The answer's hop limit is 1: it does not reach a container, where the first version's answer does.
            return None
        token = body.decode("latin-1").strip()
        if status in _NO_TOKEN_THERE or (status == 200 and not token):
            return None
        if status != 200:
            raise _NoMetadataService(f"answers {status}")
        if not _TOKEN.fullmatch(token):
            raise _NoMetadataService("answers what is no token")
        return token

    def _get(self, path: str, token: str | None) -> tuple[int, bytes]:
        return self._send("GET", path, None if token is None else ("x-aws-ec2-metadata-token", token))

    def _send(self, method: str, path: str, header: tuple[str, str] | None) -> tuple[int, bytes]:
        for left in reversed(range(self._attempts)):
            try:
                with self._transport.send(
                    method,
                    self._url + path,
                    headers=[] if header is None else [header],
                    deadline=Deadline(self._timeout),
                    connect_timeout=self._timeout,
                ) as response:
                    return response.status, response.read(_ANSWER_BYTES)
            except errors.TransportError:
                if not left:
                    raise
        raise AssertionError("unreachable")


def _end(text: str) -> str:
    """When to take the keys for ended: as the service says, but not so soon that nobody could use them."""
    try:
        end = values.parse_timestamp(text).timestamp()
    except values.WireTypeError:
        end = 0.0
    moment = datetime.fromtimestamp(max(end, time.time() + _AT_LEAST_SECONDS), timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
