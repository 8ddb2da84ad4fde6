"""``cp`` and ``fs`` as real processes, against sandboxes of a local cloud."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cli import PROGRAM, Cli, Done, bare_environ
from tests.support.cloud import LocalCloud, open_cloud
from tests.support.terminals import Terminal

WAIT_SECONDS = 30.0
ODD_NAMES = [
    b"plain",
    b" a  b ",
    b"-dash",
    b"a:b",
    b"a%2Fb",
    b"a+b&c=d?e#f",
    b"new\nline",
    "naïve 日".encode(),
    b"not-utf-8-\xff\xfe",
    b"\x1b[31mred",
    b".hidden",
    b"back\\slash",
    b"x" * 250,
]


@pytest.fixture(scope="module")
def cloud() -> Iterator[LocalCloud]:
    with open_cloud() as cloud:
        yield cloud


@pytest.fixture(scope="module")
def module_cli(cloud: LocalCloud) -> Cli:
    return Cli({**bare_environ(cloud.folder), "AGENT_SANDBOX_LOCAL_DIR": cloud.folder})


@pytest.fixture(scope="module")
def boxes(module_cli: Cli) -> tuple[str, str]:
    """Two sandboxes for the tests of this module."""
    for name in ("box", "other"):
        assert module_cli("create", name, "--local").status == 0
    return "box", "other"


@pytest.fixture
def cli(module_cli: Cli, tmp_path: Path) -> Cli:
    """The command line in a folder of the test's own; other programs find vmnest on their path."""
    return Cli({**module_cli.environ, "PYTHONPATH": os.getcwd(), "LC_ALL": "C.UTF-8"}, cwd=tmp_path)


def empty(cli: Cli, sandbox: str) -> None:
    """Leave nothing in the working directory."""
    inside(cli, "chmod -R u+rwx /work; find /work -mindepth 1 -delete", sandbox=sandbox)


@pytest.fixture
def box(cli: Cli, boxes: tuple[str, str]) -> Iterator[str]:
    """A sandbox whose working directory is empty."""
    yield boxes[0]
    empty(cli, boxes[0])


@pytest.fixture
def other(cli: Cli, boxes: tuple[str, str]) -> Iterator[str]:
    """Another one."""
    yield boxes[1]
    empty(cli, boxes[1])


def inside(cli: Cli, script: str, *, sandbox: str = "box") -> bytes:
    """What a shell in the sandbox prints."""
    done = cli("exec", sandbox, "--", "sh", "-c", script)
    assert done.status == 0, done.remarks
    return done.out


def quiet(done: Done) -> bool:
    """It went well, and said nothing."""
    return (done.status, done.out, done.err) == (0, b"", b"")


# -- where a copy goes -------------------------------------------------------------------------------------------------


def test_a_file_goes_in_and_comes_back(cli: Cli, box: str, tmp_path: Path) -> None:
    data = bytes(range(256)) * 1000
    (tmp_path / "a").write_bytes(data)
    (tmp_path / "a").chmod(0o751)
    assert quiet(cli("cp", "a", "box:b"))
    assert inside(cli, "stat -c '%a %s' b") == b"751 256000\n"
    assert quiet(cli("cp", "box:/work/b", "c"))
    assert (tmp_path / "c").read_bytes() == data
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o751


def test_copies_follow_the_rules_of_cp(cli: Cli, box: str, tmp_path: Path) -> None:
    (tmp_path / "d" / "empty").mkdir(parents=True)
    (tmp_path / "d" / "x").write_text("x")
    (tmp_path / "f").write_text("f")
    assert quiet(cli("cp", "f", "box:"))
    assert quiet(cli("cp", "-r", "d", "box:new"))
    assert quiet(cli("cp", "-r", "d", "box:/work"))
    assert quiet(cli("cp", "-r", "d/.", "box:new/empty/"))
    assert quiet(cli("cp", "f", "d/x", "box:new"))
    found = inside(cli, "find . | sort").decode().split()
    assert found == [
        *(".", "./d", "./d/empty", "./d/x", "./f"),
        *("./new", "./new/empty", "./new/empty/empty", "./new/empty/x", "./new/f", "./new/x"),
    ]
    assert quiet(cli("cp", "-r", "box:new", "back"))
    assert quiet(cli("cp", "-r", "box:new", "."))
    assert sorted(os.listdir(tmp_path / "back")) == sorted(os.listdir(tmp_path / "new")) == ["empty", "f", "x"]


@pytest.fixture(scope="module")
def unchanged(module_cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """The command line in a folder that its commands leave as it is, and so the sandbox."""
    folder = tmp_path_factory.mktemp("unchanged")
    (folder / "d").mkdir()
    for name in ("f", "g"):
        (folder / name).write_text(name)
    os.mkfifo(folder / "p")
    cli = Cli({**module_cli.environ, "PYTHONPATH": os.getcwd()}, cwd=folder)
    assert cli("create", "still", "--local").status == 0
    inside(cli, "mkdir e; echo g > g", sandbox="still")
    yield cli
    assert sorted(os.listdir(folder)) == ["d", "f", "g", "p"]
    assert inside(cli, "find . | sort; cat g", sandbox="still") == b".\n./e\n./g\ng\n"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("cp", "none", "still:"), 3, "there is no none"),
        (("cp", "still:none", "."), 3, "there is no still:none"),
        (("cp", "f", "still:none/f"), 3, "there is no directory still:none"),
        (("cp", "f", "still:none/"), 3, "there is no directory still:none/"),
        (("cp", "still:g", "none/g"), 3, "there is no directory none"),
        (("cp", "d", "still:"), 1, "d is a directory\n  With -r"),
        (("cp", "still:e", "."), 1, "still:e is a directory\n  With -r"),
        (("cp", "-r", "d", "still:g"), 1, "still:g is no directory"),
        (("cp", "f", "g", "still:g"), 2, "still:g is no directory, and several things"),
        (("cp", "f", "f2"), 2, "neither side is in a sandbox"),
        (("cp", "f", "./still:g"), 2, "neither side is in a sandbox"),
        (("cp", "-", "f"), 2, "neither side is in a sandbox"),
        (("cp", "f", "-"), 2, "neither side is in a sandbox"),
        (("cp", "-", "-"), 2, "a dash is for one copy"),
        (("cp", "-", "f", "still:"), 2, "a dash is for one copy"),
        (("cp", "f", ":/g"), 2, "the name of the sandbox is missing"),
        (("cp", "f"), 2, "the DST is missing"),
        (("cp", "f", "nobody:"), 3, "no sandbox named 'nobody'"),
        (("cp", "still:g", "/dev/null"), 1, "/dev/null is neither a file nor a directory"),
        (("cp", "still:/dev/zero", "z"), 1, "still:/dev/zero is neither a file nor a directory"),
        (("cp", "-", "still:e"), 1, "still:e is a directory\n  The copy has no name yet"),
        (("cp", "-", "still:"), 1, "vmnest: still: is a directory"),
        (("cp", "-r", "still:e", "-"), 1, "vmnest exec still -- tar -cf - ./e"),
        (("cp", "f", "still:/dev/null"), 1, "still:/dev/null is neither a file nor a directory"),
        (("cp", "-r", "still:e", "still:e/x"), 2, "into itself"),
        (("cp", "p", "still:"), 1, "p is neither a file nor a directory\n  A dash in its place"),
        (("cp", "still:g", "still:g"), 2, "are the same"),
        (("cp", "--exclude", "", "-r", "d", "still:"), 2, "exclude: a pattern is empty"),
        (("fs", "mv", "still", "e", "g", "new"), 2, "still:new is no directory, and several things"),
        (("fs", "mv", "still", "e", "e/x"), 2, "still:e cannot go into itself"),
        (("fs", "rm", "-r", "still", "."), 1, "must not end with ."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_copied_is_refused_in_a_line(
    unchanged: Cli, words: tuple[str, ...], status: int, said: str
) -> None:
    done = unchanged(*words)
    assert (done.status, done.out) == (status, b""), done.remarks
    assert done.remarks.startswith("vmnest: ")
    assert said in done.remarks


def test_the_others_are_copied_whatever_becomes_of_one(cli: Cli, box: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    done = cli("cp", "a", "none", "b", "nil", "box:")
    assert (done.status, done.text) == (3, "")
    assert done.remarks == "vmnest: there is no nil\nvmnest: there is no none\n"
    assert inside(cli, "ls") == b"a\nb\n"
    error = cli("cp", "a", "none", "box:", "--json").error
    assert error["code"] == "local_file_not_found"
    assert [each["destination"] for each in error["details"]["copied"]] == ["box:./a"]


def test_any_name_is_a_name_on_both_sides(cli: Cli, box: str, tmp_path: Path) -> None:
    for name in ODD_NAMES:
        Path(os.fsdecode(bytes(tmp_path) + b"/" + name)).write_bytes(name)
    here = [b"./" + name for name in ODD_NAMES]
    assert quiet(cli("cp", *here, "box:"))
    assert cli("fs", "cat", "box", *here).out == b"".join(ODD_NAMES)
    assert sorted(cli("fs", "ls", "box", "-0").out.split(b"\0")) == sorted([b"", *ODD_NAMES])
    (tmp_path / "back").mkdir()
    assert quiet(cli("cp", *(b"box:" + name for name in ODD_NAMES), "./back"))
    found = {entry.name: Path(os.fsdecode(entry.path)).read_bytes() for entry in os.scandir(bytes(tmp_path / "back"))}
    assert found == {name: name for name in ODD_NAMES}


# -- trees -------------------------------------------------------------------------------------------------------------


def make_tree(root: Path) -> None:
    (root / "empty").mkdir(parents=True)
    (root / "deep" / "er").mkdir(parents=True)
    for number, name in enumerate(ODD_NAMES):
        path = os.fsdecode(bytes(root) + b"/deep/er/" + name)
        Path(path).write_bytes(name * (number * 997))
        os.utime(path, ns=(10**18, 10**18 + number * 1_000_000_007))
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "secret").write_text("s")
    (root / "secret").chmod(0o600)
    (root / "link").symlink_to("deep/er")
    (root / "dangling").symlink_to("none")
    os.link(root / "run.sh", root / "deep" / "hard")
    (root / "locked").mkdir()
    (root / "locked" / "in").write_text("in")
    (root / "locked").chmod(0o555)
    for folder in ("empty", "deep/er", "deep", "locked"):
        os.utime(root / folder, ns=(10**18, 10**18))


def describe_tree(root: Path) -> str:
    """Every member with type, mode, time, links and target, and every file's digest, by find(1) and sha256sum(1)."""
    script = (
        "find . -mindepth 1 -printf '%P|%y|%m|%T@|%n|%l\\0' | sort -z;"
        "find . -type f -print0 | sort -z | xargs -0 sha256sum -z"
    )
    return subprocess.run(["sh", "-c", script], cwd=root, capture_output=True, check=True).stdout.decode("latin-1")


def test_a_tree_goes_in_and_comes_back_identical(cli: Cli, box: str, other: str, tmp_path: Path) -> None:
    make_tree(tmp_path / "tree")
    assert quiet(cli("cp", "-r", "tree", "box:"))
    assert quiet(cli("cp", "-r", "box:tree", "box:copy"))
    assert quiet(cli("cp", "-r", "box:tree", "other:there"))
    wanted = describe_tree(tmp_path / "tree")
    for number, source in enumerate(("box:tree", "other:there")):
        assert quiet(cli("cp", "-r", source, f"back{number}"))
        assert describe_tree(tmp_path / f"back{number}") == wanted
    assert quiet(cli("cp", "-r", "box:copy/.", "within"))
    assert [line.split("|")[0] for line in describe_tree(tmp_path / "within").split("\0") if "|" in line] == [
        line.split("|")[0] for line in wanted.split("\0") if "|" in line
    ]


def test_patterns_leave_things_out_in_every_direction(cli: Cli, box: str, other: str, tmp_path: Path) -> None:
    for name in ("src/a.py", "src/a.pyc", "build/x", "src/build/y", ".git/config"):
        (tmp_path / "p" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "p" / name).write_text(name)
    options = ("-r", "--exclude", "*.pyc", "--exclude=/build", "--exclude", ".git/")
    wanted = [".", "./src", "./src/a.py", "./src/build", "./src/build/y"]
    assert quiet(cli("cp", *options, "p", "box:in"))
    assert inside(cli, "cd in; find . | sort").decode().split() == wanted
    assert quiet(cli("cp", "-r", "p", "box:all"))
    assert quiet(cli("cp", *options, "box:all", "out"))
    found = subprocess.run(["find", "."], cwd=tmp_path / "out", capture_output=True, text=True, check=True).stdout
    assert sorted(found.split()) == wanted
    assert quiet(cli("cp", *options, "box:all", "box:within"))
    assert inside(cli, "cd within; find . | sort").decode().split() == wanted
    assert quiet(cli("cp", *options, "box:all", "other:across"))
    assert inside(cli, "cd across; find . | sort", sandbox="other").decode().split() == wanted


def test_what_no_copy_has_is_told_and_is_no_failure(cli: Cli, box: str, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    os.mkfifo(tmp_path / "d" / "pipe")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "d" / "sock"))
        done = cli("cp", "-r", "d", "box:")
    assert done.status == 0
    assert done.remarks.splitlines() == [
        "vmnest: not copied: pipe: a named pipe",
        "vmnest: not copied: sock: a socket",
    ]
    (copied,) = cli("cp", "-r", "d", "box:", "--json").data["copied"]
    assert {each["path"] for each in copied["skipped"]} >= {"pipe"}
    assert (copied["files"], copied["directories"]) == (0, 1)


def test_what_is_lost_is_a_failure_and_the_rest_is_copied(cli: Cli, box: str, tmp_path: Path) -> None:
    inside(cli, "mkdir d; echo a > d/a; ln -s /etc/passwd d/out; echo b > d/b")
    done = cli("cp", "-r", "box:d", "d")
    assert done.status == 1
    assert "vmnest: not everything was copied: out: a link that leads out" in done.remarks
    assert sorted(os.listdir(tmp_path / "d")) == ["a", "b"]
    error = cli("cp", "-r", "box:d", "d", "--json").error
    assert error["code"] == "incomplete_copy"
    assert error["details"]["copied"][0]["skipped"][0]["path"] == "out"


def test_a_link_that_is_named_is_followed(cli: Cli, box: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("f")
    (tmp_path / "l").symlink_to("f")
    assert quiet(cli("cp", "l", "box:l"))
    assert inside(cli, "stat -c %F l; ln -s l m; mkdir d; ln -s d e") == b"regular file\n"
    assert quiet(cli("cp", "box:m", "m"))
    assert not (tmp_path / "m").is_symlink()
    assert quiet(cli("cp", "f", "box:e"))
    assert inside(cli, "ls d") == b"f\n"
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "to-kept").symlink_to("kept")
    assert quiet(cli("cp", "box:m", "to-kept"))
    assert (tmp_path / "to-kept").is_symlink()
    assert (tmp_path / "kept").read_text() == "f"
    assert quiet(cli("cp", "-r", "box:e", "e"))
    assert sorted(os.listdir(tmp_path / "e")) == ["f"]


# -- streams -----------------------------------------------------------------------------------------------------------


def test_a_dash_is_standard_input_and_output(cli: Cli, box: str) -> None:
    line = "head -c 5000000 /dev/urandom | tee >(sha256sum >&2) | $vmnest cp - box:f; $vmnest cp box:f - | sha256sum"
    done = cli.shell(line)
    assert done.out == done.err
    assert inside(cli, "stat -c %s f") == b"5000000\n"
    copied = cli("cp", "-", "box:empty", "--json").data["copied"]
    assert [(each["source"], each["destination"], each["bytes"]) for each in copied] == [("-", "box:empty", 0)]
    assert cli("cp", "box:f", "-", "--json").error["code"] == "usage"


def test_a_reader_that_goes_ends_it_quietly(cli: Cli, box: str) -> None:
    inside(cli, "seq 2000000 > big")
    for words in ("fs cat box big", "cp box:big -"):
        done = cli.shell(f"$vmnest {words} | head -1; echo ${{PIPESTATUS[0]}}")
        assert (done.text, done.err) == ("1\n141\n", b"")


def test_a_full_disk_here_is_our_failure_and_leaves_what_was_there(cli: Cli, box: str) -> None:
    inside(cli, "echo a > a")
    done = cli.shell("$vmnest fs cat box a > /dev/full")
    assert done.status == 1
    assert "No space left" in done.remarks


def test_memory_stays_flat_whatever_the_size(cli: Cli, box: str, tmp_path: Path) -> None:
    with open(tmp_path / "big", "wb") as file:
        file.truncate(100_000_000)
    code = (
        "import resource, subprocess, sys\n"
        "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)\n"
        "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)\n"
    )
    for words in (["cp", "big", "box:big"], ["cp", "box:big", "back"], ["fs", "cat", "box", "big"]):
        status, mib = cli(*words, program=(sys.executable, "-c", code, *PROGRAM)).text.split()
        assert status == "0"
        assert int(mib) < 60, words
    assert (tmp_path / "back").stat().st_size == 100_000_000


# -- faults ------------------------------------------------------------------------------------------------------------


def slow_copy(cli: Cli, destination: str) -> subprocess.Popen[bytes]:
    """A copy whose source does not end, of which something has arrived."""
    process = cli.start("cp", "-", destination, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(bytes(3_000_000))
    process.stdin.flush()
    return process


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)], ids=str
)
def test_a_copy_that_is_cut_leaves_the_old_file_and_nothing_else(
    cli: Cli, box: str, number: signal.Signals, status: int
) -> None:
    inside(cli, "echo old > f")
    with slow_copy(cli, "box:f") as process:
        wait_for(lambda: inside(cli, "ls -A | wc -l") != b"1\n")
        process.send_signal(number)
        process.wait(WAIT_SECONDS)
    assert process.returncode == status
    wait_for(lambda: inside(cli, "ls -A; cat f") == b"f\nold\n")


def wait_for(condition: Callable[[], object]) -> None:
    for _ in range(200):
        if condition():
            return
    raise AssertionError("it did not come to that")


def test_a_failed_download_leaves_the_local_file(cli: Cli, box: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("mine")
    inside(cli, "echo theirs > secret; chmod 0 secret")
    for source in ("box:none", "box:secret"):
        assert cli("cp", source, "f").status in (1, 3)
        assert (tmp_path / "f").read_text() == "mine"
        assert os.listdir(tmp_path) == ["f"]


def test_a_suspended_sandbox_is_resumed_unless_told_otherwise(cli: Cli, box: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("f")
    assert cli("stop", "box").status == 0
    for words in (("cp", "f", "box:"), ("cp", "box:f", "g"), ("fs", "ls", "box"), ("fs", "mv", "box", "a", "b")):
        done = cli(*words, "--no-resume")
        assert (done.status, done.text) == (1, "")
        assert "is suspended" in done.remarks
    assert cli("ps", "box", "--json").data["state"] == "SUSPENDED"
    assert quiet(cli("cp", "f", "box:"))
    assert cli("fs", "cat", "box", "f").text == "f"


# -- progress ----------------------------------------------------------------------------------------------------------


def test_a_long_transfer_shows_itself_on_a_terminal_and_is_wiped(cli: Cli, box: str) -> None:
    reader, writer = os.pipe()
    with Terminal([*PROGRAM, "cp", "-", "box:f"], env=cli.environ, stdin=reader) as terminal:
        os.close(reader)
        os.write(writer, b"x" * 1000)
        shown = terminal.read_until(b"/s  -")
        assert re.search(rb"\rcopying 1000 B, [0-9.]+ B/s  -$", shown)
        os.close(writer)
        assert terminal.wait() == 0
        assert terminal.read_rest().endswith(b"\r\x1b[K")
    assert inside(cli, "cat f") == b"x" * 1000


# -- fs ----------------------------------------------------------------------------------------------------------------


def test_files_are_listed(cli: Cli, box: str) -> None:
    inside(cli, "mkdir -p d/e; echo 12345 > d/f; chmod 640 d/f; ln -s d l; touch .hidden; touch -d @0 d/e/g")
    assert cli("fs", "ls", "box").text == ".hidden\nd\nl\n"
    assert cli("fs", "ls", "box", "--depth", "3").text == ".hidden\nd\nd/e\nd/e/g\nd/f\nl\n"
    assert cli("fs", "ls", "box", "d", "/work/d/e").text == "d/e\nd/f\n/work/d/e/g\n"
    assert cli("fs", "ls", "box", "d/f").text == "d/f\n"
    assert cli("fs", "ls", "box", "-la0").out.count(b"\0") == 3
    line = next(line for line in cli("fs", "ls", "-l", "box", "d").text.splitlines() if line.endswith(" f"))
    assert re.fullmatch(r"-rw-r----- +\d+ +\d+ +6 \d{4}-\d\d-\d\d \d\d:\d\d f", line)
    assert cli("fs", "ls", "-l", "box").text.splitlines()[-1].endswith(" l -> d")
    entries = cli("fs", "ls", "box", "d", "--json").data["entries"]
    assert [(each["name"], each["type"], each["size"], each["mode"]) for each in entries][1] == ("f", "file", 6, "0640")
    done = cli("fs", "ls", "box", "none", "d")
    assert (done.status, done.text) == (3, "d/e\nd/f\n")
    assert cli("fs", "ls", "box", "--depth", "0").status == 2


def test_names_that_steer_terminals_are_escaped_there(cli: Cli, box: str) -> None:
    inside(cli, "touch \"$(printf 'a\\033[31mb\\nc\\377')\"")
    assert cli("fs", "ls", "box").out == b"a\x1b[31mb\nc\xff\n"
    with Terminal([*PROGRAM, "fs", "ls", "box"], env=cli.environ) as terminal:
        assert terminal.read_rest() == b"a\\x1b[31mb\\nc\\xff\r\n"
        assert terminal.wait() == 0


def test_contents_are_shown(cli: Cli, box: str) -> None:
    inside(cli, "printf 'a\\377' > b; echo t > t; mkdir d")
    done = cli("fs", "cat", "box", "b", "none", "t", "d", "/proc/self/comm")
    assert done.status == 3
    assert done.out.startswith(b"a\xfft\n")
    assert done.out != b"a\xfft\n"
    binary, text = cli("fs", "cat", "box", "b", "t", "--json").data["files"]
    assert (binary["encoding"], base64.b64decode(binary["content"])) == ("base64", b"a\xff")
    assert (text["encoding"], text["content"], text["path"]) == ("utf-8", "t\n", "t")


def test_facts_are_shown(cli: Cli, box: str) -> None:
    inside(cli, "printf abc > f; chmod 600 f; ln -s f l")
    shown = dict(line.split(maxsplit=1) for line in cli("fs", "stat", "box", "f", "--sha256").text.splitlines())
    assert (shown["path"], shown["type"], shown["size"], shown["mode"]) == ("f", "file", "3", "0600")
    assert shown["sha256"] == hashlib.sha256(b"abc").hexdigest()
    link, file = cli("fs", "stat", "box", "l", "f", "--json").data["entries"]
    assert (link["type"], link["target"], file["type"]) == ("link", "f", "file")
    assert cli("fs", "stat", "box", "-L", "l", "--json").data["entries"][0]["type"] == "file"
    assert cli("fs", "stat", "box", "none").status == 3


def test_directories_are_made_moved_and_removed(cli: Cli, box: str) -> None:
    done = cli("fs", "mkdir", "box", "a/b")
    assert done.status == 3
    assert "With -p" in done.remarks
    assert quiet(cli("fs", "mkdir", "-p", "-m", "750", "box", "a/b", "c"))
    assert quiet(cli("fs", "mkdir", "-p", "box", "c"))
    assert cli("fs", "mkdir", "box", "c", "--json").error["code"] == "file_exists"
    assert inside(cli, "stat -c %a c") == b"750\n"
    assert quiet(cli("fs", "mv", "box", "a", "c"))
    assert quiet(cli("fs", "mv", "box", "c/a/b", "d/"))
    assert inside(cli, "find . | sort") == b".\n./c\n./c/a\n./d\n"
    done = cli("fs", "rm", "box", "c")
    assert done.status == 1
    assert "With -r" in done.remarks
    assert quiet(cli("fs", "rm", "-r", "box", "c", "d"))
    assert cli("fs", "rm", "box", "c").status == 3
    assert quiet(cli("fs", "rm", "-f", "box", "c"))
    assert inside(cli, "find .") == b".\n"


def test_links_are_moved_and_removed_themselves(cli: Cli, box: str) -> None:
    inside(cli, "mkdir d; touch d/f; ln -s d l; ln -s none m")
    assert quiet(cli("fs", "mv", "box", "l", "m", "d"))
    assert inside(cli, "readlink d/l d/m") == b"d\nnone\n"
    assert quiet(cli("fs", "rm", "-r", "box", "d/l"))
    assert inside(cli, "ls d") == b"f\nm\n"


def test_files_are_copied_in_their_sandbox(cli: Cli, box: str) -> None:
    inside(cli, "mkdir d e; echo f > d/f; chmod 751 d/f")
    assert quiet(cli("fs", "cp", "box", "d/f", "e"))
    assert inside(cli, "stat -c %a e/f") == b"751\n"
    assert cli("fs", "cp", "box", "d", "e").status == 1
    copied = cli("fs", "cp", "-r", "box", "d", "e", "--json").data["copied"]
    assert [(each["source"], each["destination"], each["files"]) for each in copied] == [("box:d", "box:e/d", None)]
    assert inside(cli, "cat e/d/f") == b"f\n"


@pytest.mark.parametrize(
    ("words", "folder", "file"),
    [
        (("600",), 600, 644),
        (("-R", "700"), 700, 700),
        (("u=rx,go=",), 500, 644),
        (("-R", "u+rwX,go-rwx"), 700, 600),
    ],
    ids=str,
)
def test_permissions_are_changed(cli: Cli, box: str, words: tuple[str, ...], folder: int, file: int) -> None:
    inside(cli, "mkdir d; touch d/f; ln -s /etc/passwd d/l; chmod 755 d; chmod 644 d/f")
    *options, change = words
    assert quiet(cli("fs", "chmod", *options, "box", change, "d"))
    assert inside(cli, "stat -c %a d; chmod 755 d; stat -c %a d/f") == b"%d\n%d\n" % (folder, file)


def test_a_tree_is_closed_from_its_leaves_up(cli: Cli, box: str) -> None:
    inside(cli, "mkdir -p d/e; touch d/e/f; chmod 755 d/e/f")
    assert quiet(cli("fs", "chmod", "-R", "box", "a-x", "d"))
    assert inside(cli, "chmod u+x d d/e; stat -c %a d d/e d/e/f") == b"744\n744\n644\n"


def test_what_of_a_tree_cannot_be_seen_is_told_once_the_rest_is_changed(cli: Cli, box: str) -> None:
    inside(cli, "mkdir -p d/closed; touch d/f; chmod 755 d; chmod 0 d/closed")
    done = cli("fs", "chmod", "-R", "box", "o-rx", "d")
    assert done.status == 1
    assert "cannot look into d/closed in the sandbox" in done.remarks
    assert inside(cli, "stat -c %a d") == b"750\n"
    done = cli("fs", "ls", "box", "d", "--depth", "2")
    assert (done.status, done.text) == (0, "closed\nf\n")
    assert "cannot look at d/closed: " in done.remarks


def test_a_mode_that_is_none_is_a_usage_error(cli: Cli, box: str) -> None:
    done = cli("fs", "chmod", "box", "rwx", "f")
    assert (done.status, done.text) == (2, "")
    assert "MODE must be permission bits" in done.remarks


def test_standard_input_is_written(cli: Cli, box: str) -> None:
    done = cli.shell(
        "printf 'a\\377' | $vmnest fs write box new/dir/f --mode 640; echo b | $vmnest fs write box g --json"
    )
    assert done.err == b""
    assert done.text == '{"path": "g", "bytes": 2}\n'
    assert inside(cli, "stat -c %a new/dir/f; cat new/dir/f g") == b"640\na\xffb\n"
    assert cli.shell("$vmnest fs write box f < /").status == 1
    assert cli("fs", "write", "box", "f", "--mode", "rw").status == 2


def test_the_group_has_a_help_of_its_own(cli: Cli) -> None:
    text = cli("fs", "--help").text
    assert all(verb in text for verb in ("fs ls", "fs cat", "fs chmod"))
    assert "Did you mean vmnest cp?" in cli("upload").remarks
    assert "Did you mean vmnest fs cat?" in cli("cat").remarks
