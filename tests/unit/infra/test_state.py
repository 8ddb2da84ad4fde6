"""The record of stacks: read as 0.1.2 wrote it, changed by several at a time, never lost."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.paths import ROOT
from vmnest import errors
from vmnest.deadline import Deadline
from vmnest.infra import state
from vmnest.infra.state import Resource, StackState, Store

# As 0.1.2 writes it, with every kind of resource.
OLD = {
    "stacks": {
        "agent-microvm/dev": {
            "resources": {
                "role": {
                    "kind": "iam-role",
                    "id": "exec",
                    "managed": True,
                    "attrs": {"arn": "arn:aws:iam::1:role/exec"},
                },
                "bucket": {"kind": "s3-bucket", "id": "theirs", "managed": False, "attrs": {}},
                "image": {"kind": "microvm-image", "id": "arn:i", "managed": True, "attrs": {"version": "1.0"}},
            },
            "outputs": {"image_arn": "arn:i", "build_bucket": "theirs", "subnet_ids": ["subnet-1", "subnet-2"]},
        },
        "other/dev": {"resources": {}, "outputs": {}},
    }
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "infra-state.json"))


def written(store: Store) -> dict[str, object]:
    whole = json.loads(Path(store.path).read_bytes())
    assert isinstance(whole, dict)
    return whole


def test_a_file_of_0_1_2_is_read_as_it_is_and_gets_a_schema_number_at_the_first_write(store: Store) -> None:
    Path(store.path).write_text(json.dumps(OLD))
    before = Path(store.path).read_bytes()
    stack = store.load("agent-microvm/dev")
    assert stack is not None
    assert (stack.project, stack.stack, stack.target, stack.region) == ("agent-microvm", "dev", "aws", None)
    assert stack.resources["role"] == Resource("iam-role", "exec", attrs={"arn": "arn:aws:iam::1:role/exec"})
    assert stack.resources["bucket"].managed is False
    assert stack.outputs["subnet_ids"] == ["subnet-1", "subnet-2"]
    assert Path(store.path).read_bytes() == before
    store.save(stack.with_resource("bucket", Resource("s3-bucket", "ours")))
    whole = written(store)
    assert whole["schema"] == 1
    assert whole["stacks"]["other/dev"] == OLD["stacks"]["other/dev"]  # type: ignore[index]  # JSON


def test_reading_writes_nothing_and_makes_no_folder(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "none" / "infra-state.json"))
    assert (store.load("a/b"), store.all()) == (None, [])
    assert list(tmp_path.iterdir()) == []


def test_a_stack_is_recorded_whole_and_the_file_is_private(store: Store) -> None:
    stack = StackState("a", "b", region="eu-west-1", outputs={"image_arn": "arn:x"})
    stack = stack.with_resource("role", Resource("iam-role", "r", managed=False, attrs={"arn": "arn:r"}))
    store.save(stack)
    assert store.load("a/b") == stack
    assert store.all() == [stack]
    assert stat.S_IMODE(os.stat(store.path).st_mode) == 0o600


def test_a_value_is_changed_by_copies() -> None:
    stack = StackState("a", "b").with_resource("x", Resource("k", "1")).with_outputs({"o": "1"})
    assert stack.without_resource("x").resources == {}
    assert stack.without_resource("y") == stack
    assert (stack.outputs, stack.label, stack.key) == ({"o": "1"}, "a/b", "a/b")


def test_a_stack_of_this_machine_has_a_key_of_its_own(store: Store) -> None:
    here = StackState("a", "b", target="local", outputs={"image_arn": "here"})
    there = StackState("a", "b", outputs={"image_arn": "there"})
    store.save(here)
    store.save(there)
    assert (here.key, there.key) == ("local:a/b", "a/b")
    assert (store.load("local:a/b"), store.load("a/b")) == (here, there)
    assert [each.target for each in store.all()] == ["local", "aws"]
    store.remove(here.key)
    store.remove(here.key)
    assert store.all() == [there]


def test_what_this_version_does_not_know_is_written_back(store: Store) -> None:
    resource = {"kind": "k", "id": "i", "managed": True, "attrs": {}, "later": 1}
    stack = {"resources": {"x": resource}, "outputs": {}, "later": 2}
    Path(store.path).write_text(json.dumps({"stacks": {"a/b": stack}, "later": 3}))
    found = store.load("a/b")
    assert found is not None
    store.save(found.with_outputs({"o": "1"}))
    whole = {"schema": 1, "later": 3, "stacks": {"a/b": {**stack, "outputs": {"o": "1"}}}}
    assert written(store) == whole


def test_a_save_without_a_change_writes_nothing(store: Store) -> None:
    store.save(StackState("a", "b"))
    before = os.stat(store.path).st_mtime_ns, os.stat(store.path).st_ino
    store.save(StackState("a", "b"))
    assert (os.stat(store.path).st_mtime_ns, os.stat(store.path).st_ino) == before


def test_a_link_stays_a_link(store: Store, tmp_path: Path) -> None:
    (tmp_path / "real.json").write_bytes(b"")
    Path(store.path).symlink_to("real.json")
    store.save(StackState("a", "b"))
    assert Path(store.path).is_symlink()
    assert (tmp_path / "real.json").read_bytes() != b""


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"stacks": {', "not JSON"),
        (b"[]", "not an object"),
        (b'{"stacks": []}', "stacks: no object"),
        (b'{"schema": "1", "stacks": {}}', "wrong schema number"),
        (b'{"schema": true, "stacks": {}}', "wrong schema number"),
        (b'{"stacks": {"a/b": 1}}', "the stack a/b: no object"),
        (b'{"stacks": {"a/b": {"region": 1}}}', "the region of the stack a/b is no text"),
        (b'{"stacks": {"a/b": {"resources": []}}}', "the resources of the stack a/b: no object"),
        (b'{"stacks": {"a/b": {"resources": {"x": {"id": 1}}}}}', "the resource x of the stack a/b has a wrong kind"),
        (b'{"stacks": {"a/b": {"resources": {"x": {"managed": 0}}}}}', "the resource x of the stack a/b has a wrong"),
        (b'{"stacks": {"a/b": {"outputs": {"x": 1}}}}', "the output x of the stack a/b is neither"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_a_damaged_file_is_kept_and_refused(store: Store, data: bytes, reason: str) -> None:
    Path(store.path).write_bytes(data)
    with pytest.raises(errors.StateFileError, match=f"is damaged: {reason}"):
        store.load("a/b")
    assert [each.name for each in Path(store.path).parent.iterdir()] == ["infra-state.json"]
    with pytest.raises(errors.StateFileError, match=f"is damaged: {reason}") as caught:
        store.save(StackState("a", "b"))
    assert Path(store.path).read_bytes() == data
    assert Path(f"{store.path}.bad").read_bytes() == data
    assert "infra-state.json.bad" in str(caught.value.hint)


def test_a_newer_file_is_refused_and_untouched(store: Store) -> None:
    data = b'{"schema": 2, "stacks": {"a/b": {"all": "new"}}}'
    Path(store.path).write_bytes(data)
    for act in (store.all, lambda: store.save(StackState("a", "b")), lambda: store.remove("a/b")):
        with pytest.raises(errors.StateFileError, match=r"newer version of vmnest \(schema 2"):
            act()
    assert Path(store.path).read_bytes() == data


def test_an_empty_file_records_nothing(store: Store) -> None:
    Path(store.path).write_bytes(b"")
    assert store.all() == []
    store.save(StackState("a", "b"))
    assert len(store.all()) == 1


WRITER = """
import sys
from vmnest.infra.state import Resource, StackState, Store

store = Store(sys.argv[1])
stack = StackState("project", sys.argv[2])
for number in range(20):
    stack = stack.with_resource(f"r{number}", Resource("kind", str(number)))
    store.save(stack)
"""


def test_writers_in_several_processes_lose_nothing(store: Store) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, store.path, f"s{number}"], cwd=ROOT) for number in range(4)
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0, 0]
    assert sorted((each.stack, len(each.resources)) for each in store.all()) == [(f"s{n}", 20) for n in range(4)]


def test_writers_in_several_threads_lose_nothing(store: Store) -> None:
    def write(number: int) -> None:
        for count in range(10):
            store.save(StackState("p", f"s{number}", outputs={"count": str(count)}))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.outputs for each in store.all()] == [{"count": "9"}] * 4


def test_a_stack_is_held_by_one_at_a_time(store: Store) -> None:
    with store.hold("a/b"), store.hold("a/c"), store.hold("local:a/b"):
        of_another = store.hold("a/b")
        with pytest.raises(errors.InfrastructureError, match="changes the infrastructure of a/b"), of_another:
            pass
        with pytest.raises(errors.InfrastructureError), store.hold("a/b", deadline=Deadline(0.05)):
            pass
        store.save(StackState("a", "b"))  # its holder writes
    with store.hold("a/b"):
        pass


def test_a_stack_is_let_go_when_its_holder_fails(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.hold("a/b"):
        raise ZeroDivisionError
    with store.hold("a/b"):
        pass


def test_whoever_waits_for_a_stack_gets_it_when_it_is_let_go(store: Store) -> None:
    held = threading.Event()
    let_go = threading.Event()

    def hold() -> None:
        with store.hold("a/b"):
            held.set()
            let_go.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    threading.Timer(0.1, let_go.set).start()
    with store.hold("a/b", deadline=Deadline(30)):
        assert let_go.is_set()
    thread.join()


HOLDER = """
import sys
from vmnest.infra.state import Store

with Store(sys.argv[1]).hold("a/b"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_stack_is_let_go_when_its_holder_is_killed(store: Store) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, store.path], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(errors.InfrastructureError), store.hold("a/b"):
            pass
        holder.kill()
        holder.wait()
    with store.hold("a/b"):
        pass


def test_the_file_is_where_the_variable_says_or_in_the_home_folder(tmp_path: Path) -> None:
    assert state.locate({"AGENT_SANDBOX_INFRA_STATE": "/x/y.json", "HOME": "/"}) == ("/x/y.json", None)
    assert state.locate({"HOME": str(tmp_path)}) == (f"{tmp_path}/.agent_sandbox/infra-state.json", None)
    assert state.open_default({"HOME": str(tmp_path)}).path == f"{tmp_path}/.agent_sandbox/infra-state.json"


def test_without_a_home_folder_the_file_follows_the_local_clouds(tmp_path: Path) -> None:
    environ = {"HOME": "/proc/nowhere", "AGENT_SANDBOX_LOCAL_DIR": str(tmp_path / "local")}
    store = state.open_default(environ)
    assert store.path == f"{tmp_path}/local/infra-state.json"
    assert store.all() == []
    store.save(StackState("a", "b"))
    assert stat.S_IMODE((tmp_path / "local").stat().st_mode) == 0o700


def test_a_place_that_cannot_be_written_is_told_with_the_variable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = Store(f"{tmp_path}/file/infra-state.json")
    with pytest.raises(errors.StateFileError, match="cannot write the state file") as caught:
        store.save(StackState("a", "b"))
    assert "AGENT_SANDBOX_INFRA_STATE" in str(caught.value.hint)
    with pytest.raises(errors.StateFileError, match="cannot write the state file"), store.hold("a/b"):
        pass


_TEXT = st.text(max_size=10)
_NAME = st.text(st.characters(exclude_characters="/:"), min_size=1, max_size=10)
_RESOURCES = st.builds(Resource, _TEXT, _TEXT, managed=st.booleans(), attrs=st.dictionaries(_TEXT, st.integers()))
_STACKS = st.builds(
    StackState,
    _NAME,
    _NAME,
    target=st.sampled_from(["aws", "local"]),
    region=st.none() | _TEXT,
    resources=st.dictionaries(_TEXT, _RESOURCES, max_size=3),
    outputs=st.dictionaries(_TEXT, _TEXT | st.lists(_TEXT, max_size=2), max_size=3),
)


@given(st.lists(_STACKS, max_size=4, unique_by=lambda each: each.key))
def test_what_is_written_is_what_is_read(stacks: list[StackState]) -> None:
    contents = state._Contents({each.key: each for each in stacks}, {})
    assert state._parse(contents.to_bytes(), "f") == contents
