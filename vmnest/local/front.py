"""The one listener of the control plane: which service a request is for, by the scope that it is signed for.

Nothing is verified here: the service that is claimed holds the request to its claim. What is not signed goes to the
control plane, which refuses it. Whoever does not even name our access key is refused without his body being read: every
user of this machine can connect, and thousands of bodies would fill its memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..aws import signing
from ..wire import http1
from . import httpd, s3_service

_PRESIGNED = "X-Amz-Credential="


class Front:
    """Hands each request to its service.

    Args:
        control: Of Lambda, and of what is signed for nothing that is here.
        s3: Bodies of its requests may be large: it reads them itself.
        others: Further services by their signing names.
        access_key: The one that requests are signed with.
    """

    def __init__(
        self,
        control: httpd.Answer,
        *,
        s3: s3_service.S3,
        others: Mapping[str, httpd.Answer] | None = None,
        access_key: str,
    ) -> None:
        self._s3 = s3
        self._control = control
        self._others = dict(others or {})
        self._access_key = access_key

    def idle_seconds(self) -> float:
        """For how long nobody has sent or fetched an object, which may take minutes."""
        return self._s3.idle_seconds()

    def respond(self, request: http1.Request, incoming: httpd.Incoming) -> httpd.Reply:
        """The reply to a request."""
        service = signing.claimed_service(request.fields)
        # A signed URL has its signature in the query; S3 says that there are none here.
        if service == s3_service.SERVICE or (service is None and _PRESIGNED in request.target):
            return self._s3.respond(request, incoming)
        answer = self._others.get(service or "", self._control)
        if signing.claimed_access_key(request.fields) != self._access_key:
            return answer(request, b"")
        return httpd.with_body(answer)(request, incoming)
