"""Who answers at a service's address, and what time it is there."""

from __future__ import annotations

from email.utils import formatdate

import pytest

from tests.support.clock import FakeClock
from tests.support.peers import Answer, Serve, Silence, json_answer
from vmnest import errors
from vmnest.aws import reaching
from vmnest.deadline import Deadline
from vmnest.transport import Transport

HTML = [("Content-Type", "text/html")]


def reach(serve: Serve, step: object, *, clock: FakeClock | None = None) -> reaching.Reached:
    transport = Transport(environ={})
    try:
        return reaching.reach(
            serve(step).url, transport=transport, deadline=Deadline(20), **({} if clock is None else {"clock": clock})
        )
    finally:
        transport.close()


@pytest.mark.parametrize("behind", [600.0, -600.0, 0.0])
def test_the_peer_s_clock_is_compared_with_ours(serve: Serve, fake_clock: FakeClock, behind: float) -> None:
    date = formatdate(int(fake_clock.time()) + behind, usegmt=True)
    found = reach(serve, json_answer(403, {}, headers={"Date": date}), clock=fake_clock)
    assert found.skew == pytest.approx(behind, abs=1.0)
    assert (found.status, found.is_foreign) == (403, False)


@pytest.mark.parametrize("date", [{}, {"Date": "yesterday"}])
def test_a_peer_need_not_say_what_time_it_is(serve: Serve, date: dict[str, str]) -> None:
    assert reach(serve, json_answer(403, {}, headers=date)).skew is None


@pytest.mark.parametrize(
    ("step", "is_foreign", "text"),
    [
        (Answer(200, b"<html><title>Log in</title>", HTML), True, "Log in"),
        (Answer(200, b"<html>" + b"x" * 200_000, HTML), True, "<html>xxx"),
        (Answer(302, b"", [("Location", "http://login.example/")]), True, "http://login.example/"),
        (Answer(502, b""), True, None),
        # Some front ends of AWS speak XML; its request's id tells.
        (Answer(403, b"<AccessDenied/>", [("x-amzn-RequestId", "r")]), False, None),
        (json_answer(404, {"message": None}), False, None),
    ],
    ids=["page", "long page", "redirection", "empty", "xml of aws", "json"],
)
def test_what_is_no_service_is_told_apart(serve: Serve, step: Answer, is_foreign: bool, text: str | None) -> None:
    found = reach(serve, step)
    assert found.is_foreign is is_foreign
    assert (found.text or "")[: len(text or "")] == (text or "")
    assert len(found.text or "") <= 300


def test_nothing_is_signed_and_nothing_is_asked_that_changes_anything(serve: Serve) -> None:
    peer = serve(json_answer(403, {}))
    transport = Transport(environ={})
    reaching.reach(peer.url, transport=transport, deadline=Deadline(20))
    transport.close()
    assert peer.requests[0].method == "GET"
    assert peer.requests[0].get("authorization") is None


def test_nobody_there_is_an_error(serve: Serve, refused_port: int) -> None:
    with pytest.raises(errors.ConnectError):
        reaching.reach(f"http://127.0.0.1:{refused_port}", transport=Transport(environ={}), deadline=Deadline(20))
    with pytest.raises(errors.ReadTimeoutError):
        reaching.reach(serve(Silence()).url, transport=Transport(environ={}), deadline=Deadline(0.2))
