"""Logs as others keep them: moto's CloudWatch Logs, written by boto3, and a local cloud's, whose sandbox is real."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import boto3
import pytest

from tests.support.cli import PROGRAM, Cli, bare_environ
from tests.support.cloud import LocalCloud, open_cloud
from tests.support.moto_server import serving_moto
from tests.support.paths import ROOT
from vmnest import errors, transport
from vmnest.aws import credentials, service
from vmnest.control import log_streams
from vmnest.control.log_marks import Mark
from vmnest.control.log_streams import Subject
from vmnest.control.microvm_logs import MicrovmLog, Pace
from vmnest.deadline import Deadline

NUMBERS = itertools.count(1)
ARN = "arn:aws:lambda:us-east-1:111122223333:microvm-image:"


class Written:
    """An image of its own, a MicroVM, and boto3 to write its log."""

    def __init__(self, url: str, client: Any) -> None:
        number = next(NUMBERS)
        self.began = datetime.now(timezone.utc)
        self.subject = Subject(f"microvm-{number:08}-aaaa", f"{ARN}image-{number}", "1.0", self.began)
        self.client = client
        self.group = f"/aws/lambda-microvms/image-{number}"
        self.stream = f"{self.began:%Y/%m/%d}[1.0]{self.subject.microvm_id}"
        caller = service.Service(
            "logs",
            endpoint=url,
            region="us-east-1",
            credentials=credentials.StaticSource(credentials.build("AKIDEXAMPLE", "secret")),
            transport=transport.shared(),
        )
        self.log = MicrovmLog(caller, self.subject, groups=log_streams.groups_of(self.subject))

    def put(self, *messages: str, at: int = 0, stream: str = "") -> None:
        """Write these, a millisecond between them, beginning so many after the launch."""
        where = {"logGroupName": self.group, "logStreamName": stream or self.stream}
        for make, names in (("create_log_group", ["logGroupName"]), ("create_log_stream", list(where))):
            try:
                getattr(self.client, make)(**{name: where[name] for name in names})
            except self.client.exceptions.ResourceAlreadyExistsException:
                continue
        begin = int(self.began.timestamp() * 1000) + at
        events = [{"timestamp": begin + number, "message": text} for number, text in enumerate(messages)]
        self.client.put_log_events(**where, logEvents=events)

    def read(self, mark: Mark | None = None, **how: Any) -> list[str]:
        deadline = Deadline(30)
        self.log.find(deadline=deadline)
        return [event.message for event in self.log.read(mark or Mark(), deadline=deadline, **how)]


@pytest.fixture(scope="module")
def moto() -> Iterator[tuple[str, Any]]:
    with serving_moto() as url:
        session = boto3.Session("setup", "setup", region_name="us-east-1")
        yield url, session.client("logs", endpoint_url=url)


@pytest.fixture
def written(moto: tuple[str, Any]) -> Written:
    return Written(*moto)


def test_what_boto3_writes_is_read(written: Written) -> None:
    lines = [f"{number}: Grüße \x1b[1m" for number in range(50)]
    written.put(*lines)
    written.put("x", stream="2026/01/01[1.0]microvm-another")
    written.put("allowed", at=500, stream=f"{written.stream}/egress")
    assert written.read() == [*lines, "allowed"]
    assert written.log.selection.streams == (written.stream, f"{written.stream}/egress")


@pytest.mark.parametrize("tail", [0, 1, 7, 60, 100])
def test_the_end_of_what_boto3_writes_is_read(written: Written, tail: int) -> None:
    lines = [f"{number}" for number in range(60)]
    written.put(*lines)
    assert written.read(tail=tail) == lines[max(0, 60 - tail) :]
    assert written.read(tail=tail, matches=lambda text: text.endswith("5")) == lines[5::10][max(0, 6 - tail) :]


def test_what_comes_late_is_told_and_nothing_twice(written: Written) -> None:
    mark = Mark()
    written.put("a", "b", at=10)
    assert written.read(mark) == ["a", "b"]
    mark = Mark.from_cursor(mark.to_cursor())
    written.put("late", at=5)
    written.put("c", at=20)
    assert written.read(mark) == ["late", "c"]


def test_what_boto3_writes_is_followed(written: Written) -> None:
    looks = itertools.count()

    def has_ended() -> bool:
        number = next(looks)
        if number in (1, 2, 5):
            written.put(f"at look {number}", at=number)
        return number > 3

    following = written.log.follow(Mark(), has_ended=has_ended, pace=Pace(0.01, 0.02, 0.1))
    assert [event.message for event in following] == ["at look 1", "at look 2"]


def test_where_nothing_is_written_nothing_is_there(written: Written) -> None:
    assert written.read() == []
    assert not written.log.selection.is_there
    written.put("x", stream="another")
    assert written.read(tail=5) == []
    assert written.log.selection.is_there


def test_a_group_that_goes_while_it_is_read_has_nothing_more(written: Written) -> None:
    written.put("a")
    written.log.find(deadline=Deadline(30))
    written.client.delete_log_group(logGroupName=written.group)
    assert list(written.log.read(Mark(), tail=3, deadline=Deadline(30))) == []


def test_a_name_that_can_be_no_group_is_refused_before_it_is_sent(written: Written) -> None:
    log = MicrovmLog(written.log._service, written.subject, groups=("not a group",))
    with pytest.raises(errors.RequestInvalidError):
        log.find(deadline=Deadline(30))


# -- on this machine ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloud]:
    with open_cloud() as cloud:
        yield cloud


@pytest.fixture
def cli(cloud: LocalCloud) -> Cli:
    environ = {**bare_environ(cloud.folder), "AGENT_SANDBOX_LOCAL_DIR": cloud.folder, "AGENT_SANDBOX_TARGET": "local"}
    return Cli(environ)


ASK_OUTSIDE = "import urllib.request; urllib.request.urlopen('http://refused.test/')"


def test_a_sandboxs_log_is_read_followed_and_there_when_it_is_gone(cli: Cli, cloud: LocalCloud) -> None:
    assert cli("create", "box", "--egress-allow", "allowed.test").status == 0
    follow = [*PROGRAM, "logs", "--follow", "box"]
    with subprocess.Popen(
        follow, cwd=ROOT, env=cli.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as following:
        assert following.stdout is not None
        first = following.stdout.readline()
        assert b"agentd: " in first
        assert cli("exec", "box", "--", "python3", "-c", ASK_OUTSIDE).status == 1
        microvm_id = cli("rm", "box", "--json").data["removed"][0]["microvm_id"]
        out, err = following.communicate(timeout=60)
        assert (following.returncode, err) == (0, b"vmnest: box has ended\n")
    whole = cli("logs", microvm_id, LANG="C", PYTHONIOENCODING="ascii")
    assert sorted((first + out).splitlines()) == sorted(whole.out.splitlines())
    assert "[egress] egress to refused.test:80: refused" in whole.text
    assert cli("logs", "box").status == 3
    events = cli("logs", microvm_id, "--tail", "1", "--json").data["events"]
    assert "hook terminate" in events[0]["message"]
    assert datetime.fromisoformat(events[0]["time"]).utcoffset() is not None
    assert len(_ask_boto3(cloud, microvm_id)) == len(whole.text.splitlines())


def _ask_boto3(cloud: LocalCloud, microvm_id: str) -> list[object]:
    client, group = cloud.client("logs"), "/aws/lambda-microvms/local"
    streams = [stream["logStreamName"] for stream in client.describe_log_streams(logGroupName=group)["logStreams"]]
    names = [name for name in streams if microvm_id in name]
    found: list[object] = client.filter_log_events(logGroupName=group, logStreamNames=names)["events"]
    return found
