"""A MicroVM's log, opened at the plane of ``log_plane``, in a time of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.clock import FakeClock
from tests.support.log_plane import LogPlane
from vmnest import transport
from vmnest.aws import credentials, service
from vmnest.control import log_streams
from vmnest.control.log_streams import Selection, Subject
from vmnest.control.microvm_logs import MicrovmLog
from vmnest.deadline import Deadline


class Opened:
    """A log, and what it is read by."""

    def __init__(self, plane: LogPlane, subject: Subject, sender: transport.Transport, clock: FakeClock) -> None:
        self.clock = clock
        self.service = service.Service(
            "logs",
            endpoint=plane.url,
            region="us-east-1",
            credentials=credentials.StaticSource(credentials.build("AKIDEXAMPLE", "secret")),
            transport=sender,
            clock=clock,
        )
        groups = log_streams.groups_of(subject) or ("/none",)
        self.log = MicrovmLog(self.service, subject, groups=groups, clock=clock)

    def deadline(self, seconds: float = 60) -> Deadline:
        return Deadline(seconds, clock=self.clock)

    def find(self, *, is_thorough: bool = True) -> Selection:
        return self.log.find(is_thorough=is_thorough, deadline=self.deadline())


Open = Callable[[Subject], Opened]


@pytest.fixture
def open_log(log_plane: LogPlane, fake_clock: FakeClock) -> Iterator[Open]:
    """Opens the log of a MicroVM."""
    sender = transport.Transport(environ={})
    yield lambda subject: Opened(log_plane, subject, sender, fake_clock)
    sender.close()
