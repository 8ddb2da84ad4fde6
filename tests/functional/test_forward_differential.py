"""The forwarder and the server behind it understand every request in the same way, or it is refused.

What the forwarder passes on is read by h11, by Python's http.server and by node: each must find in it the requests that
the forwarder took it for, no more, no fewer, and with the same bodies.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import h11
import pytest
from hypothesis import HealthCheck, given, settings

from tests.support import forward_oracle as oracle
from tests.support.forward import Forwarded, forwarding, forwarding_by_relay
from tests.support.forward_corpus import BROKEN, EITHER, PASSES, REFUSED, Case, odd_requests
from tests.support.forward_endpoint import Call
from tests.support.forward_oracle import Message, Node, Reading

EXAMPLES = 300


def _tell(call: Call) -> None:
    call.read()
    call.answer(200, call.target.encode("latin-1"))


@pytest.fixture(scope="module", params=["direct", "relayed"])
def forwarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forwarded]:
    """Straight to an application; or through the local cloud's proxy and the agent's relay, which read it all, too."""
    if request.param == "direct":
        opened = forwarding(_tell)
    else:
        opened = forwarding_by_relay(_tell, folder=tmp_path_factory.mktemp("agent"))
    with opened as one:
        yield one


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    program = shutil.which("node")
    if program is None:
        pytest.skip("needs node (apt-get install nodejs)")
    with oracle.running_node(program) as running:
        yield running


class Passed:
    """What came of a client's bytes: what the forwarder sent on, and the answers that the client got."""

    def __init__(self, forwarded: Forwarded, sent: bytes) -> None:
        before = forwarded.endpoint.raw
        client = forwarded.client()
        try:
            client.send(sent)
            client.end_sending()
        except ConnectionError:
            pass  # it was refused before it was all said
        self.said = client.receive_all()
        client.close()
        after = forwarded.endpoint.raw
        before += [b""] * (len(after) - len(before))
        self.raw = [new[len(old) :] for new, old in zip(after, before, strict=True) if len(new) > len(old)]

    @property
    def messages(self) -> list[Message]:
        """The requests in what was passed on, as h11 reads it, or http.server if it takes more."""
        found = []
        for raw in self.raw:
            by_h11, by_http_server = oracle.read_with_h11(raw), oracle.read_with_http_server(raw)
            found += max(by_h11.messages, by_http_server.messages, key=len)
        return found

    @property
    def answered(self) -> int:
        """How many answers of the application the client got."""
        return self.said.count(b"x-app: yes")

    @property
    def refusal(self) -> int | None:
        """The status that the forwarder itself answered at the end; 0 if it did not."""
        last = self.said.rpartition(b"HTTP/1.1 ")[2]
        if not last or b"x-app: yes" in last:
            return 0
        return int(last[:3])


def assert_understood(passed: Passed, node: Node) -> None:
    """All parties find the same whole requests in what was passed on, or refuse them: node knows few methods."""
    for raw in passed.raw:
        by_h11 = oracle.read_with_h11(raw)
        assert_same(by_h11, oracle.read_with_http_server(raw), raw)
        if b"HEAD " not in raw:  # of those it cannot tell what it has understood
            assert_same(by_h11, node.read(raw), raw)


def assert_same(one: Reading, other: Reading, raw: bytes) -> None:
    # node leaves what follows an upgrade that nobody listens for; it is never sent before that is answered.
    stops = [reading.end != oracle.COMPLETE or b"\r\nupgrade:" in raw.lower() for reading in (one, other)]
    count = min(len(one.digests), len(other.digests))
    assert one.digests[:count] == other.digests[:count], raw
    assert len(one.digests) == count or stops[1], raw
    assert len(other.digests) == count or stops[0], raw


# -- the oracle itself -------------------------------------------------------------------------------------------------


def test_the_parties_differ_where_they_are_known_to(node: Node) -> None:
    raw = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    assert oracle.read_with_h11(raw).end == oracle.COMPLETE
    assert node.read(raw).end == oracle.REFUSED


def test_all_parties_find_two_requests_with_a_body_and_a_trailer(node: Node) -> None:
    raw = (
        b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\nhi\r\n0\r\nX-T: 1\r\n\r\n"
        b"GET /b HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    for reading in (oracle.read_with_h11(raw), oracle.read_with_http_server(raw), node.read(raw)):
        first, second = reading.messages
        assert (first.body, first.trailers, second.target) == (b"hi", (("x-t", "1"),), "/b")


# -- by hand -----------------------------------------------------------------------------------------------------------


def by_name(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", PASSES, ids=by_name)
def test_what_is_clear_passes_as_it_is(forwarded: Forwarded, node: Node, case: Case) -> None:
    passed = Passed(forwarded, case.sent)
    assert [(one.method, one.target, one.body) for one in passed.messages] == [tuple(one) for one in case.passes]
    assert (passed.answered, passed.refusal) == (len(case.passes), 0)
    assert_understood(passed, node)


@pytest.mark.parametrize("case", REFUSED, ids=by_name)
def test_what_can_be_read_in_two_ways_is_refused(forwarded: Forwarded, node: Node, case: Case) -> None:
    passed = Passed(forwarded, case.sent)
    assert [(one.method, one.target, one.body) for one in passed.messages] == [tuple(one) for one in case.passes]
    assert (passed.answered, passed.refusal) == (len(case.passes), case.then)
    assert_understood(passed, node)


@pytest.mark.parametrize("case", BROKEN, ids=by_name)
def test_a_body_that_is_none_never_becomes_a_whole_request(forwarded: Forwarded, node: Node, case: Case) -> None:
    passed = Passed(forwarded, case.sent)
    assert (passed.messages, passed.answered) == ([], 0)
    assert_understood(passed, node)


@pytest.mark.parametrize("case", EITHER, ids=by_name)
def test_what_may_pass_in_a_normal_form_is_understood_alike(forwarded: Forwarded, node: Node, case: Case) -> None:
    passed = Passed(forwarded, case.sent)
    assert "/hidden" not in [one.target for one in passed.messages[:1]]
    assert passed.answered == len(passed.messages)
    assert_understood(passed, node)


# -- by the hundred ----------------------------------------------------------------------------------------------------


def in_origin_form(message: Message) -> Message:
    return message._replace(target=re.sub(r"^http://[^/?#]*(?=/)", "", message.target))


def test_of_any_bytes_only_whole_requests_pass_that_all_understand_alike(forwarded: Forwarded, node: Node) -> None:
    @settings(
        max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
    )
    @given(sent=odd_requests())
    def passes_or_not(sent: bytes) -> None:
        passed = Passed(forwarded, sent)
        assert_understood(passed, node)
        assert passed.answered == len(passed.messages)
        # What is understood of the client is what is understood of the forwarder, as far as that let it pass (in which
        # order is not known where it has used several connections).
        got = [message.digest for message in passed.messages]
        meant = oracle.read_with_http_server(sent, keeps_reading=True).messages
        assert sorted(got) == sorted(in_origin_form(message).digest for message in meant[: len(got)])

    passes_or_not()


def test_fields_arrive_with_their_order_case_and_repetitions(forwarded: Forwarded) -> None:
    lines = [b"X-B: 1", b"x-a: 2", b"X-b: 3", b"COOKIE: a=1", b"Cookie: b=2", b"Accept: */*", b"X-B: 1"]
    passed = Passed(forwarded, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"\r\n".join(lines) + b"\r\n\r\n")
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(passed.raw[0])
    event = connection.next_event()
    assert isinstance(event, h11.Request)
    assert [name + b": " + value for name, value in event.headers.raw_items() if name + b": " + value in lines] == lines
