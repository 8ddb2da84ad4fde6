"""What MicroVMs print, on its way to the logs."""

import os
import threading
import time

import pytest

from vmnest.local import console_logs, faults, logs, options, records

GROUP, STREAM = "/mine", "all"
WANTED = {"cloudWatch": {"logGroup": GROUP, "logStream": STREAM}}


def record(logging=WANTED, *, role=None, microvm_id="microvm-1"):
    spec = records.Spec(
        image_arn="arn:aws:lambda:us-east-1:000000000000:microvm-image:img",
        image_version="2.0",
        execution_role_arn=role,
        idle_policy=None,
        max_seconds=60,
        ingress=(),
        egress=(),
        kms_key=None,
        payload=None,
        options=options.Options(),
        logging=logging,
    )
    return records.Record(microvm_id, spec, number=1, started_at=1_800_000_000.0, endpoint="http://h")


class TestTarget:
    @pytest.mark.parametrize(
        ("logging", "role", "target"),
        [
            (None, None, None),
            ({"disabled": {}}, "arn:role", None),
            (WANTED, None, (GROUP, STREAM)),
            (
                {"cloudWatch": {}},
                None,
                ("/aws/lambda-microvms/img", "2027/01/15[2.0]microvm-1"),
            ),
            (None, "arn:role", ("/aws/lambda-microvms/img", "2027/01/15[2.0]microvm-1")),
            ({"cloudWatch": {"logGroup": "g"}}, None, ("g", "2027/01/15[2.0]microvm-1")),
        ],
    )
    def test_it_is_where_the_call_says(self, logging, role, target):
        assert console_logs.find_target(record(logging, role=role)) == target


class Console:
    """A VM's folder and the file of its output."""

    def __init__(self, folder):
        self.folder = str(folder)
        os.makedirs(self.folder, exist_ok=True)
        self.path = os.path.join(self.folder, console_logs.CONSOLE_NAME)
        self.replace(b"")

    def print(self, data):
        with open(self.path, "ab") as file:
            file.write(data)

    def replace(self, data):
        with open(self.path, "wb") as file:
            file.write(data)


@pytest.fixture
def console(tmp_path):
    return Console(tmp_path / "vm")


@pytest.fixture
def kept(tmp_path):
    return logs.Logs(str(tmp_path))


def told(kept):
    try:
        return [event.message for event in kept.events(GROUP, STREAM)]
    except faults.Fault:  # nothing was told yet
        return []


def wait_for(kept, wanted):
    end = time.monotonic() + 20
    while (found := told(kept)) != wanted:
        assert time.monotonic() < end, found
        time.sleep(0.01)


@pytest.fixture
def outputs(kept):
    one = console_logs.ConsoleLogs(kept, look_seconds=0.01)
    one.start()
    yield one
    one.close()


def test_lines_are_told_as_they_come_and_the_rest_at_the_end(outputs, kept, console):
    console.print(b"before\n")
    outputs.follow(record(), console.folder)
    wait_for(kept, ["before"])
    console.print(b"\nprogress 1\rprogress 2\r\n\xff half")
    wait_for(kept, ["before", "progress 2"])
    console.print(b"\nmore")
    wait_for(kept, ["before", "progress 2", "\ufffd half"])
    outputs.finish("microvm-1")
    assert told(kept) == ["before", "progress 2", "\ufffd half", "more"]
    outputs.finish("microvm-1")


def test_the_rest_is_told_though_the_file_is_gone(outputs, kept, console):
    outputs.follow(record(), console.folder)
    console.print(b"last words\n")
    os.unlink(console.path)
    outputs.finish("microvm-1")
    assert told(kept) == ["last words"]


def test_a_console_that_began_anew_is_told_from_its_beginning(outputs, kept, console):
    console.print(b"x" * 100 + b"\n")
    outputs.follow(record(), console.folder)
    wait_for(kept, ["x" * 100])
    console.replace(b"again\n")
    wait_for(kept, ["x" * 100, "again"])


def test_a_line_without_an_end_is_told_in_parts(outputs, kept, console):
    console.print(b"x" * (console_logs.MAX_LINE_BYTES + 1))
    outputs.follow(record(), console.folder)
    wait_for(kept, ["x" * (console_logs.MAX_LINE_BYTES + 1)])


def test_the_next_daemon_goes_on_where_this_one_was(outputs, kept, console):
    outputs.follow(record(), console.folder)
    console.print(b"one\n")
    wait_for(kept, ["one"])
    outputs.close()
    console.print(b"two\n")
    again = console_logs.ConsoleLogs(kept)
    again.follow(record(), console.folder)
    again.finish("microvm-1")
    again.close()
    assert told(kept) == ["one", "two"]


def test_nobody_is_followed_who_is_not_wanted_or_has_no_console(outputs, kept, console, tmp_path, caplog):
    console.print(b"x\n")
    outputs.follow(record(None), console.folder)
    outputs.follow(record(microvm_id="other"), str(tmp_path / "none"))
    outputs.finish("microvm-1")
    outputs.finish("other")
    assert told(kept) == []
    assert "the output of other goes to no log" in caplog.text


def test_following_twice_or_after_the_end_is_harmless(outputs, kept, console):
    outputs.follow(record(), console.folder)
    outputs.follow(record(), console.folder)
    console.print(b"once\n")
    outputs.finish("microvm-1")
    outputs.close()
    outputs.follow(record(), console.folder)
    outputs.close()
    assert told(kept) == ["once"]


def test_many_follow_and_finish_at_once(outputs, kept, tmp_path):
    def work(number):
        for turn in range(20):
            one = Console(tmp_path / f"{number}-{turn}")
            outputs.follow(record(microvm_id=f"{number}-{turn}"), one.folder)
            one.print(b"line\n")
            outputs.finish(f"{number}-{turn}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told(kept) == ["line"] * 80
