"""Many MicroVMs behind one scripted control plane: the pages of a list, single looks, ends; and what was asked for."""

from __future__ import annotations

import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.control import summary, vm
from tests.support.peers import Answer, Peer, Request, Serve, json_answer
from vmnest import registry
from vmnest.registry import Record

BASE = "/2025-09-09/microvms"
TOKEN_SUFFIX = "/auth-token"
MOST_REQUESTS = 2000
REGION = "us-east-1"
REFUSALS = {
    404: ("ResourceNotFoundException", "MicroVM not found"),
    403: ("AccessDeniedException", "not authorized"),
    400: ("ValidationException", "no"),
}


def refusal(status: int) -> Answer:
    """An error as the service answers it."""
    kind, message = REFUSALS[status]
    return json_answer(status, {"message": message}, headers={"x-amzn-errortype": kind})


class Fleet:
    """The MicroVMs of an account.

    Attributes:
        members: What each of them is besides what all are, by the id, in the order of the list.
        asked: How often it was asked for what: ``list``, ``get``, ``end``, ``token``.
        refused: The status of the refusal of what is in it.
        page: How many a page has at most.
        empty_pages: How many pages without an item come first.
        delay: Seconds that each answer takes.
        doubles: Each page begins with the last item of the one before.
    """

    def __init__(self) -> None:
        self.members: dict[str, dict[str, object]] = {}
        self.asked: Counter[str] = Counter()
        self.refused: dict[str, int] = {}
        self.page = 50
        self.empty_pages = 0
        self.delay = 0.0
        self.doubles = False
        self._lock = threading.Lock()

    def add(self, *ids: str, **members: object) -> None:
        """MicroVMs with these ids."""
        self.members.update({each: dict(members) for each in ids})

    def answer(self, request: Request) -> Answer:
        """A step for each request."""
        path, _, query = request.target.partition("?")
        microvm_id = urllib.parse.unquote(path.removeprefix(BASE).lstrip("/"))
        kind = "list" if not microvm_id else "end" if request.method == "DELETE" else "get"
        if microvm_id.endswith(TOKEN_SUFFIX):
            kind, microvm_id = "token", microvm_id.removesuffix(TOKEN_SUFFIX)
        with self._lock:
            self.asked[kind] += 1
        if self.delay:
            time.sleep(self.delay)
        if kind in self.refused:
            return refusal(self.refused[kind])
        if kind == "list":
            return json_answer(200, self._page(dict(urllib.parse.parse_qsl(query))))
        if microvm_id not in self.members:
            return refusal(404)
        if kind == "token":
            return json_answer(200, {"authToken": {"X-aws-proxy-auth": "token"}})
        if kind == "end":
            with self._lock:
                self.members[microvm_id]["state"] = "TERMINATED"
            return json_answer(200, {})
        return json_answer(200, vm(**{"microvmId": microvm_id, **self.members[microvm_id]}))

    def _page(self, query: dict[str, str]) -> dict[str, object]:
        number = int(query.get("nextToken", "0"))
        if number < self.empty_pages:
            return {"items": [], "nextToken": str(number + 1)}
        size = min(self.page, int(query.get("maxResults", "50")))
        begin = (number - self.empty_pages) * size
        known = [*self.members.items()]
        chosen = known[max(0, begin - self.doubles) : begin + size]
        items = [
            summary(each, **{name: value for name, value in members.items() if name in summary(each)})
            for each, members in chosen
        ]
        is_last = begin + size >= len(known)
        return {"items": items, "nextToken": None if is_last else str(number + 1)}


@pytest.fixture
def aws_records(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> registry.Registry:
    """An empty registry that is the process's own, with keys for AWS and nowhere to go."""
    monkeypatch.setenv("AGENT_SANDBOX_STATE", f"{tmp_path}/state.json")
    monkeypatch.setenv("AGENT_SANDBOX_LOCAL_DIR", f"{tmp_path}/local")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    return registry.open_default()


Recording = Callable[..., Record]


@pytest.fixture
def record_as(aws_records: registry.Registry) -> Recording:
    """Records a name; its MicroVM is ``microvm-NAME`` unless told otherwise."""

    def put(name: str, **members: object) -> Record:
        record = Record(name, microvm_id=f"microvm-{name}", region=REGION).replace(**members)
        aws_records.put(record)
        return record

    return put


@pytest.fixture
def fleet(serve: Serve, aws_records: registry.Registry, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """A fleet that is AWS for this process."""
    made = Fleet()
    peer: Peer = serve(*[made.answer] * MOST_REQUESTS)
    monkeypatch.setenv("AWS_ENDPOINT_URL", peer.url)
    return made
