"""What MicroVMs print, on its way to the logs."""

import os
import threading
import time

import pytest

from vmnest.local import console_logs, faults, logs, options, records
from vmnest.local.drivers import channel, kernel

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
            (None, None, ("/aws/lambda-microvms/img", "2027/01/15[2.0]microvm-1")),
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
        self.path = os.path.join(self.folder, channel.CONSOLE_NAME)
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


def wait_for(kept, wanted, *, least=False):
    end = time.monotonic() + 20
    while (found := told(kept)[: len(wanted) if least else None]) != wanted:
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


def test_lines_have_the_time_at_which_they_were_printed(outputs, kept, console):
    console.print(b"one\n")
    os.utime(console.path, (1_700_000_000, 1_700_000_000))
    outputs.follow(record(), console.folder)
    outputs.finish("microvm-1")
    assert [event.time for event in kept.events(GROUP, STREAM)] == [1_700_000_000_000]


def test_the_rest_is_told_though_the_file_is_gone(outputs, kept, console):
    console.print(b"first\n")
    outputs.follow(record(), console.folder)
    wait_for(kept, ["first"])
    console.print(b"last words\n")
    os.unlink(console.path)
    outputs.finish("microvm-1")
    assert told(kept) == ["first", "last words"]


def test_a_console_that_began_anew_is_told_from_its_beginning(outputs, kept, console):
    console.print(b"x" * 100 + b"\n")
    outputs.follow(record(), console.folder)
    wait_for(kept, ["x" * 100])
    console.replace(b"again\n")
    wait_for(kept, ["x" * 100, "again"])


def test_a_line_without_an_end_is_told_in_parts(outputs, kept, console):
    console.print(b"x" * (console_logs.MAX_LINE_BYTES + 1))
    outputs.follow(record(), console.folder)
    wait_for(kept, ["x" * console_logs.MAX_LINE_BYTES, "x"])


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


def test_nothing_is_told_where_that_was_disabled_or_there_is_no_console(outputs, kept, console, tmp_path):
    console.print(b"x\n")
    silent = record({"disabled": {}})
    outputs.follow(silent, console.folder)
    outputs.tell_egress(silent, "egress to a:1: allowed")
    outputs.follow(record(microvm_id="other"), str(tmp_path / "none"))
    outputs.finish("microvm-1")
    outputs.finish("other")
    assert kept.groups() == []


def test_a_console_that_comes_later_is_told(outputs, kept, tmp_path):
    outputs.follow(record(), str(tmp_path / "later"))
    Console(tmp_path / "later").print(b"hello\n")
    wait_for(kept, ["hello"])


def test_a_console_that_cannot_be_read_keeps_nobody_from_ending(outputs, kept, tmp_path, caplog):
    os.makedirs(tmp_path / "vm" / channel.CONSOLE_NAME)
    outputs.follow(record(), str(tmp_path / "vm"))
    outputs.finish("microvm-1")
    assert told(kept) == []
    assert "cannot be read" in caplog.text


def test_what_was_dropped_before_it_could_be_read_is_missed(outputs, kept, console):
    drop, block = console_logs.LOOK_BYTES, 65536
    lines = b"".join(b"%0127d\n" % number for number in range(2 * drop // 128))
    console.print(lines)
    with open(console.path, "rb+", buffering=0) as file:
        kernel.punch(file.fileno(), start=0, length=drop + block)
    outputs.follow(record(), console.folder)
    outputs.finish("microvm-1")
    missing, *rest = told(kept)
    assert missing == f"[vmnest: {drop + block} bytes of output are missing here]"
    assert rest == lines[drop + block :].decode().split()


def test_of_a_flood_so_much_is_read_in_a_look_and_all_of_it_in_the_end(kept, console):
    lines = b"".join(b"%0127d\n" % number for number in range(2 * console_logs.LOOK_BYTES // 128 + 5))
    console.print(lines)
    one = console_logs.ConsoleLogs(kept, look_seconds=0.01)
    one.follow(record(), console.folder)
    one.start()
    wait_for(kept, lines[: console_logs.LOOK_BYTES].decode().split(), least=True)
    one.finish("microvm-1")
    one.close()
    assert told(kept) == lines.decode().split()


def test_whoever_finishes_second_waits_for_the_first(kept, console):
    console.print(b"last words\n")
    is_writing, may_write = threading.Event(), threading.Event()

    class Slow:
        def write(self, *told):
            is_writing.set()
            assert may_write.wait(20)
            kept.write(*told)

    one = console_logs.ConsoleLogs(Slow())
    one.follow(record(), console.folder)
    seen = []
    threads = [threading.Thread(target=one.finish, args=("microvm-1",))]
    threads[0].start()
    assert is_writing.wait(20)
    threads.append(threading.Thread(target=lambda: (one.finish("microvm-1"), seen.append(told(kept)))))
    threads[1].start()
    may_write.set()
    for thread in threads:
        thread.join(20)
    assert seen == [["last words"]]


def test_egress_has_a_stream_of_its_own_beside_that_of_the_console(outputs, kept):
    outputs.tell_egress(record({"cloudWatch": {"logGroup": GROUP, "logStream": "s" * 512}}), "egress to a:1: allowed")
    outputs.tell_egress(record(None), "egress to b:2: refused, it is not in the rules")
    assert [event.message for event in kept.events(GROUP, "s" * 505 + "/egress")] == ["egress to a:1: allowed"]
    stream = "2027/01/15[2.0]microvm-1/egress"
    assert [event.message for event in kept.events("/aws/lambda-microvms/img", stream)] == [
        "egress to b:2: refused, it is not in the rules"
    ]


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
