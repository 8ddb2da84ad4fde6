"""A VM's endpoint without a VM: the real proxy, in front of loopback servers."""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from collections.abc import Iterator, Mapping, Sequence

from tests.support.machines import FakeMachine
from vmnest.local import acceptor, connectors, options, proxy, records, tokens
from vmnest.wire import names, streams

ANSWER_SECONDS = 20


class Endpoint:
    """An endpoint, and what a client of it needs."""

    def __init__(self, record: records.Record, seal: tokens.Seal, machine: FakeMachine) -> None:
        self.record = record
        self.seal = seal
        self.machine = machine
        self.host, _, port = record.endpoint.rpartition("/")[2].partition(":")
        self.port = int(port)

    @property
    def url(self) -> str:
        return self.record.endpoint

    def token(
        self,
        *ports: int | tuple[int, int],
        microvm_id: str | None = None,
        expires_in: float = 60,
        for_shell: bool = False,
    ) -> str:
        """A token for these ports (8080 by default)."""
        ranges = [port if isinstance(port, tuple) else (port, port) for port in ports or (8080,)]
        return self.seal.make(
            tokens.Grant(
                microvm_id or self.record.microvm_id,
                ports=ranges,
                expires_at=time.time() + expires_in,
                for_shell=for_shell,
            )
        )

    def auth(self, *ports: int) -> dict[str, str]:
        """The headers of a request that may pass to the first of these ports."""
        return {names.PROXY_AUTH_HEADER: self.token(*ports), names.PROXY_PORT_HEADER: str((ports or (8080,))[0])}

    def connect(self) -> http.client.HTTPConnection:
        """A client's connection; the caller closes it."""
        return http.client.HTTPConnection(self.host, self.port, timeout=ANSWER_SECONDS)

    def get(
        self,
        path: str = "/",
        *,
        headers: Mapping[str, str] | None = None,
        method: str = "GET",
        body: bytes | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        """One request on a connection of its own: status, headers (lower case) and body."""
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, body, dict(self.auth() if headers is None else headers))
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()

    @contextlib.contextmanager
    def raw(self) -> Iterator[streams.Stream]:
        """A bare connection."""
        with socket.create_connection((self.host, self.port), timeout=ANSWER_SECONDS) as sock:
            yield streams.Stream(sock)


@contextlib.contextmanager
def open_endpoint(
    ports: Mapping[int, int],
    *,
    ingress: Sequence[str] = (),
    state: str = names.RUNNING,
    idle_policy: Mapping[str, object] | None = None,
) -> Iterator[Endpoint]:
    """An endpoint in front of these ports: guest port → loopback port."""
    seal = tokens.Seal("test")
    listener = acceptor.bind()
    spec = records.Spec(
        image_arn=names.image_arn(region="us-east-1", account="000000000000", name="local"),
        image_version="1.0",
        execution_role_arn=None,
        idle_policy=idle_policy,
        max_seconds=60,
        ingress=connectors.check_ingress(ingress),
        egress=(),
        kms_key=None,
        payload=None,
        options=options.Options(),
    )
    record = records.Record(
        "microvm-test",
        spec,
        number=1,
        started_at=time.time(),
        listener=listener,
        endpoint=f"http://127.0.0.1:{listener.getsockname()[1]}",
    )
    machine = FakeMachine(ports, on_end=lambda ended: None)
    record.machine = machine
    record.state = state
    data_plane, serving = proxy.Proxy(seal), acceptor.Acceptor()
    serving.start()
    serving.listen(listener, lambda sock: data_plane.serve(record, sock), name="endpoint")
    try:
        yield Endpoint(record, seal, machine)
    finally:
        serving.close()
