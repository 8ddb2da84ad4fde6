"""A control plane whose answers come from a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.clock import FakeClock
from tests.support.peers import Peer, Serve, Step
from vmnest import transport
from vmnest.aws import credentials, service
from vmnest.control import Control
from vmnest.deadline import Deadline

IMAGE_ARN = "arn:aws:lambda:us-east-1:111122223333:microvm-image:demo"


class Controlled:
    """A ``Control``, the peer it talks to, and a service of the same kind; time stands still unless somebody waits."""

    def __init__(self, peer: Peer, sender: transport.Transport, clock: FakeClock) -> None:
        self.peer = peer
        self.clock = clock
        self.service = service.Service(
            "lambda-microvms",
            endpoint=peer.url,
            region="us-east-1",
            credentials=credentials.StaticSource(credentials.build("AKIDEXAMPLE", "secret")),
            transport=sender,
            clock=clock,
        )
        self.control = Control(self.service)

    def deadline(self, seconds: float | None = 60) -> Deadline:
        return Deadline(seconds, clock=self.clock)


Controls = Callable[..., Controlled]


@pytest.fixture
def controls(serve: Serve, fake_clock: FakeClock) -> Iterator[Controls]:
    """Makes control planes; takes the steps of their script."""
    sender = transport.Transport(environ={})

    def build(*script: Step) -> Controlled:
        return Controlled(serve(*script), sender, fake_clock)

    yield build
    sender.close()


def vm(**members: object) -> dict[str, object]:
    """A MicroVM as the service answers it, nulls and unmodelled members included."""
    return {
        "microvmId": "microvm-1",
        "state": "RUNNING",
        "endpoint": "0000.lambda-microvm.us-east-1.on.aws",
        "imageArn": IMAGE_ARN,
        "imageVersion": "1.0",
        "executionRoleArn": None,
        "idlePolicy": None,
        "maximumDurationInSeconds": 28800,
        "startedAt": 1789463942.026,
        "terminatedAt": None,
        "stateReason": None,
        "terminationReasonCode": None,
        "ingressNetworkConnectors": ["in"],
        "egressNetworkConnectors": ["out"],
        **members,
    }


def summary(microvm_id: str, **members: object) -> dict[str, object]:
    """A MicroVM as a listing has it."""
    return {
        "microvmId": microvm_id,
        "state": "RUNNING",
        "imageArn": IMAGE_ARN,
        "imageVersion": "1.0",
        "startedAt": 1789463942.026,
        **members,
    }
