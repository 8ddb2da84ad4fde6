"""The registry of names."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.paths import ROOT, UPSTREAM_PYTHON
from vmnest import errors
from vmnest.registry import SCHEMA, Record, Registry, _Change, check_name, locate, open_default

ARN = "arn:aws:lambda:eu-west-1:123456789012:microvm-image:demo"


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(str(tmp_path / "state" / "state.json"))


def write(registry: Registry, content: object) -> None:
    path = Path(registry.path)
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def on_disk(registry: Registry) -> dict[str, object]:
    value = json.loads(Path(registry.path).read_bytes())
    assert isinstance(value, dict)
    return value


def files_beside(registry: Registry) -> set[str]:
    return {path.name for path in Path(registry.path).parent.iterdir()}


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "0", "web", "Web-1.x_y", "a" * 63])
def test_a_good_name_is_returned(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "a" * 64, "-a", ".a", "_a", "../x", "a/b", "a b", "a\n", "\na", "ä", "a\x00", "٣", "a\udcff"]
)
def test_a_name_that_breaks_paths_headers_or_hosts_is_refused(name: str) -> None:
    with pytest.raises(errors.UsageError) as caught:
        check_name(name)
    assert "1 to 63" in str(caught.value.hint)


# -- records -----------------------------------------------------------------------------------------------------------


def test_a_record_comes_back_as_it_was_put(registry: Registry) -> None:
    record = Record(
        "web",
        microvm_id="microvm-1",
        endpoint="https://x",
        image_arn=ARN,
        region="eu-west-1",
        target="local",
        client_token="token",
        state_hint="RUNNING",
        created_at=12.5,
        stopped_at=13,
        auto_resume=False,
        agent_port=8081,
        log_group="/aws/demo",
        labels={"team": "a"},
        sources={"image_arn": "output of demo/dev"},
        launch={"image_arn": ARN, "idle_policy": {"auto_resume_enabled": True}, "egress_connectors": []},
        max_duration=3600,
        idle_policy={"max_idle_duration_seconds": 60},
        unknown={"later": [1, {"x": None}]},
    )
    registry.put(record)
    assert registry.get("web") == record
    assert registry.all() == [record]


def test_records_keep_the_order_in_which_they_were_made(registry: Registry) -> None:
    for name in ("c", "a", "b"):
        registry.put(Record(name))
    assert [record.name for record in registry.all()] == ["c", "a", "b"]


def test_a_name_in_use_is_not_overwritten(registry: Registry) -> None:
    registry.put(Record("web", microvm_id="first", target="local"))
    with pytest.raises(errors.NameInUseError, match="on this machine"):
        registry.put(Record("web", microvm_id="second"))
    assert registry.require("web").microvm_id == "first"


def test_a_name_is_free_until_it_is_recorded(registry: Registry) -> None:
    registry.check_free("web")
    assert not Path(registry.path).exists()
    registry.put(Record("web"))
    with pytest.raises(errors.NameInUseError, match="on AWS"):
        registry.check_free("web")


def test_a_record_is_replaced_only_on_demand(registry: Registry) -> None:
    registry.put(Record("web", microvm_id="first"))
    registry.put(Record("web", microvm_id="second"), replace=True)
    assert registry.require("web").microvm_id == "second"


def test_a_record_is_put_in_the_place_of_the_one_that_is_expected(registry: Registry) -> None:
    seen = Record("web", microvm_id="first", client_token="t1")
    registry.put(seen.replace(state_hint="RUNNING"))
    registry.put(Record("web", microvm_id="second", client_token="t2"), expected=seen)
    with pytest.raises(errors.NameInUseError):
        registry.put(Record("web", client_token="t3"), expected=seen)
    assert registry.require("web").microvm_id == "second"
    registry.remove("web")
    registry.put(Record("web", client_token="t4"), expected=seen)


def test_a_record_is_within_a_search_or_not() -> None:
    for target, expected in (
        ("aws", [True, False, True]),
        ("local", [True, True, False]),
        ("moon", [True, False, False]),
    ):
        assert [Record("web", target=target).is_within(local) for local in (None, True, False)] == expected


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (Record("web", region="eu-west-1"), [True, False, True]),
        (Record("web", region="us-east-1"), [False, False, False]),
        (Record("web", image_arn="arn:aws:lambda:us-east-1:1:microvm-image:x"), [False, False, False]),
        (Record("web"), [True, False, True]),
        (Record("web", region="us-east-1", target="local"), [False, True, False]),
    ],
    ids=["there", "elsewhere", "by its image", "unknown", "here"],
)
def test_a_region_limits_a_search_to_aws_unless_it_is_one_of_this_machine(record: Record, expected: list[bool]) -> None:
    assert [record.is_within(local, "eu-west-1") for local in (None, True, False)] == expected


def test_a_microvm_gets_one_name_where_that_is_wished(registry: Registry) -> None:
    registry.put(Record("web", microvm_id="first"))
    with pytest.raises(errors.NameInUseError, match="as web") as caught:
        registry.put(Record("other", microvm_id="first"), is_sole=True)
    assert caught.value.details == {"name": "web"}
    registry.put(Record("other", microvm_id="second"), is_sole=True)
    registry.put(Record("third", microvm_id="second"))
    assert [record.name for record in registry.all()] == ["web", "other", "third"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [({"microvm_id": "m"}, {"microvm_id": "m", "client_token": "t"}, True),
     ({"microvm_id": "m", "client_token": "t"}, {"microvm_id": "n", "client_token": "t"}, False),
     ({"client_token": "t"}, {"client_token": "t", "microvm_id": "m"}, True),
     ({"client_token": "t"}, {"client_token": "u"}, False),
     ({"client_token": "t"}, {"microvm_id": "m"}, False),
     ({"microvm_id": "m"}, {}, False), ({}, {}, True)],
    ids=str,
)  # fmt: skip
def test_a_launch_is_known_by_its_microvm_and_before_that_by_its_token(
    one: dict[str, Any], other: dict[str, Any], same: bool
) -> None:
    first, second = Record("a", **one), Record("a", **other)
    assert (first.is_same_launch(second), second.is_same_launch(first)) == (same, same)


@pytest.mark.parametrize("target", ["gcp", "", "Local"])
def test_a_target_that_is_not_known_is_neither_aws_nor_this_machine(registry: Registry, target: str) -> None:
    write(registry, {"sandboxes": {"web": {"microvm_id": "m", "target": target}, "old": {"microvm_id": "n"}}})
    assert registry.require("old").is_local is False
    with pytest.raises(errors.UnsupportedError, match="does not know"):
        _ = registry.require("web").is_local
    registry.update("old", state_hint="RUNNING")
    assert registry.require("web").target == target


def test_the_stamp_changes_with_every_change_of_the_file(registry: Registry) -> None:
    stamps = [registry.stamp()]
    registry.put(Record("web"))
    stamps.append(registry.stamp())
    assert registry.stamp() == stamps[-1]
    registry.update("web", state_hint="RUNNING")
    stamps.append(registry.stamp())
    assert stamps[0] is None
    assert len(set(stamps)) == 3


def test_an_update_changes_the_members_named_and_no_others(registry: Registry) -> None:
    registry.put(Record("web", client_token="t", unknown={"later": 1}))
    changed = registry.update("web", microvm_id="microvm-1", state_hint="RUNNING")
    assert changed == registry.get("web")
    assert (changed.client_token, changed.unknown, changed.microvm_id) == ("t", {"later": 1}, "microvm-1")


def test_a_name_that_stands_for_another_launch_by_now_is_not_updated(registry: Registry) -> None:
    old = Record("web", client_token="old")
    registry.put(Record("web", client_token="new"))
    with pytest.raises(errors.SandboxNotFoundError, match="another sandbox"):
        registry.update("web", expected=old, microvm_id="microvm-1")
    assert registry.require("web").microvm_id is None
    assert registry.update("web", expected=registry.require("web"), microvm_id="microvm-2").microvm_id == "microvm-2"


def test_an_update_of_an_unknown_member_is_a_programming_error(registry: Registry) -> None:
    registry.put(Record("web"))
    with pytest.raises(TypeError):
        registry.update("web", microvmid="typo")


def test_a_name_that_is_not_recorded_is_not_found(registry: Registry) -> None:
    registry.put(Record("other"))
    assert registry.get("web") is None
    with pytest.raises(errors.SandboxNotFoundError) as caught:
        registry.require("web")
    assert "other" in str(caught.value.hint)
    with pytest.raises(errors.SandboxNotFoundError):
        registry.update("web", state_hint="RUNNING")
    assert registry.remove("web") is False


def test_a_removed_name_is_free_again(registry: Registry) -> None:
    registry.put(Record("web"))
    assert registry.remove("web") is True
    assert registry.get("web") is None
    registry.put(Record("web"))


def test_a_name_that_stands_for_another_launch_by_now_is_not_removed(registry: Registry) -> None:
    seen = Record("web", microvm_id="first", client_token="t1")
    registry.put(seen.replace(state_hint="RUNNING"))
    assert registry.remove("web", expected=seen) is True
    registry.put(Record("web", microvm_id="second", client_token="t2"))
    assert registry.remove("web", expected=seen) is False
    assert registry.require("web").microvm_id == "second"


@given(
    name=st.text(),
    labels=st.dictionaries(st.text(), st.text(), max_size=3),
    unknown=st.dictionaries(st.text().map("x".__add__), st.integers() | st.text() | st.none(), max_size=3),
)
def test_what_is_written_is_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, name: str, labels: dict[str, str], unknown: dict[str, object]
) -> None:
    registry = Registry(str(tmp_path_factory.mktemp("any") / "state.json"))
    record = Record(name, labels=labels, unknown=unknown)
    registry.put(record)
    assert registry.get(name) == record


# -- the file ----------------------------------------------------------------------------------------------------------


def test_folder_and_files_are_private_from_the_start_whatever_the_umask(registry: Registry) -> None:
    before = os.umask(0o022)
    try:
        registry.put(Record("web"))
    finally:
        os.umask(before)
    path = Path(registry.path)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()} == {0o600}


def test_folders_above_it_are_private_too_if_they_had_to_be_made(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o755)
    before = os.umask(0)
    try:
        Registry(str(tmp_path / "there" / "a" / "b" / "state.json")).put(Record("web"))
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / each).stat().st_mode) for each in ("there", "there/a", "there/a/b")]
    assert modes == [0o755, 0o700, 0o700]


def test_a_file_that_was_open_to_all_is_private_after_the_first_write(registry: Registry) -> None:
    write(registry, {"sandboxes": {}})
    os.chmod(registry.path, 0o644)
    registry.put(Record("web"))
    assert stat.S_IMODE(os.stat(registry.path).st_mode) == 0o600


def test_nothing_temporary_stays_behind(registry: Registry) -> None:
    for name in ("a", "b"):
        registry.put(Record(name))
    registry.remove("a")
    assert files_beside(registry) == {"state.json", "state.json.lock"}


def test_reading_writes_nothing(registry: Registry) -> None:
    assert registry.all() == []
    assert registry.get("web") is None
    assert not Path(registry.path).parent.exists()
    write(registry, {"sandboxes": {"old": {"name": "old", "microvm_id": "m"}}})
    before = Path(registry.path).read_bytes()
    assert [record.name for record in registry.all()] == ["old"]
    assert Path(registry.path).read_bytes() == before
    assert files_beside(registry) == {"state.json"}


def test_a_change_of_nothing_is_not_written(registry: Registry) -> None:
    registry.put(Record("web"))
    before = os.stat(registry.path)
    registry.update("web", target="aws")
    registry.remove("absent")
    assert os.stat(registry.path).st_ino == before.st_ino


def test_a_link_keeps_leading_to_the_file(registry: Registry, tmp_path: Path) -> None:
    real = tmp_path / "elsewhere.json"
    real.write_text('{"sandboxes": {}}')
    path = Path(registry.path)
    path.parent.mkdir()
    path.symlink_to(real)
    registry.put(Record("web"))
    assert path.is_symlink()
    assert "web" in json.loads(real.read_bytes())["sandboxes"]


def test_an_empty_file_holds_no_records(registry: Registry) -> None:
    write(registry, "")
    assert registry.all() == []
    registry.put(Record("web"))
    assert [record.name for record in registry.all()] == ["web"]


# -- files of others ---------------------------------------------------------------------------------------------------


OLD = {"sandboxes": {"web": {"name": "web", "microvm_id": "m-1", "endpoint": "host", "image_arn": ARN, "region": None}}}


def test_a_file_without_schema_is_read_as_it_is_and_gets_one_at_the_first_write(registry: Registry) -> None:
    write(registry, OLD)
    record = registry.require("web")
    assert (record.microvm_id, record.endpoint, record.region, record.target) == ("m-1", "host", None, "aws")
    assert "schema" not in on_disk(registry)
    registry.put(Record("new"))
    assert on_disk(registry)["schema"] == SCHEMA
    assert registry.require("web") == record


@pytest.mark.skipif(not UPSTREAM_PYTHON.exists(), reason="the upstream package is not installed")
def test_a_file_that_the_upstream_package_wrote_is_read(registry: Registry) -> None:
    program = (
        "from pathlib import Path; from agent_sandbox.cli.state import SandboxRecord, StateStore; import sys;"
        "StateStore(Path(sys.argv[1])).put(SandboxRecord('web', 'm-1', 'host.example', sys.argv[2], 'eu-west-1'))"
    )
    subprocess.run([UPSTREAM_PYTHON, "-c", program, registry.path, ARN], check=True)
    expected = Record("web", microvm_id="m-1", endpoint="host.example", image_arn=ARN, region="eu-west-1")
    assert registry.all() == [expected]


@pytest.mark.parametrize("name", ["", "../x", "[red]x", "a" * 80, "-rf", "ä\n"])
def test_an_odd_name_of_an_older_version_can_be_used_and_removed(registry: Registry, name: str) -> None:
    write(registry, {"sandboxes": {name: {"name": name, "microvm_id": "m"}, "b": {"microvm_id": "n"}}})
    assert registry.require(name).microvm_id == "m"
    registry.update(name, state_hint="RUNNING")
    assert registry.remove(name) is True
    assert [record.name for record in registry.all()] == ["b"]


def test_members_that_are_not_known_are_kept(registry: Registry) -> None:
    write(registry, {"schema": 1, "later": {"x": 1}, "sandboxes": {"web": {"microvm_id": "m", "mode": ["a"]}}})
    registry.update("web", state_hint="RUNNING")
    content = on_disk(registry)
    assert content["later"] == {"x": 1}
    assert content["sandboxes"] == {
        "web": {"mode": ["a"], "name": "web", "microvm_id": "m", "target": "aws", "state_hint": "RUNNING"}
    }


def test_a_newer_schema_is_refused_and_left_alone(registry: Registry) -> None:
    write(registry, {"schema": SCHEMA + 1, "sandboxes": {}})
    before = Path(registry.path).read_bytes()
    with pytest.raises(errors.StateFileError, match="newer version"):
        registry.all()
    with pytest.raises(errors.StateFileError, match="newer version"):
        registry.put(Record("web"))
    assert Path(registry.path).read_bytes() == before
    assert files_beside(registry) == {"state.json", "state.json.lock"}


DAMAGED = {
    "cut in half": '{"schema": 1, "sandboxes": {"web": {"mic',
    "not JSON": "{bad",
    "not UTF-8": "\udcff\udcfe{}",
    "a list": "[]",
    "a number": "1",
    "wrong schema": '{"schema": "1", "sandboxes": {}}',
    "schema below 1": '{"schema": 0, "sandboxes": {}}',
    "sandboxes are a list": '{"sandboxes": []}',
    "a record is text": '{"sandboxes": {"web": "m"}}',
    "an id is a number": '{"sandboxes": {"web": {"microvm_id": 5}}}',
    "a stop is text": '{"sandboxes": {"web": {"stopped_at": "now"}}}',
    "a flag is a number": '{"sandboxes": {"web": {"auto_resume": 0}}}',
    "a port is true": '{"sandboxes": {"web": {"agent_port": true}}}',
    "a source is a number": '{"sandboxes": {"web": {"sources": {"image_arn": 1}}}}',
    "a label is a number": '{"sandboxes": {"web": {"labels": {"a": 1}}}}',
    "a duration is a flag": '{"sandboxes": {"web": {"max_duration": true}}}',
    "nested without end": "[" * 100_000,
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_file_is_refused_and_never_replaced(registry: Registry, text: str) -> None:
    data = text.encode("utf-8", errors="surrogateescape")
    Path(registry.path).parent.mkdir()
    Path(registry.path).write_bytes(data)
    with pytest.raises(errors.StateFileError, match="damaged"):
        registry.all()
    assert files_beside(registry) == {"state.json"}
    for _ in range(2):
        with pytest.raises(errors.StateFileError, match="damaged") as caught:
            registry.put(Record("web"))
        assert "state.json.bad" in str(caught.value.hint)
        assert "vmnest ls --all shows" in str(caught.value.hint)  # the service's list tells what went on running
    assert Path(registry.path).read_bytes() == data
    assert Path(registry.path + ".bad").read_bytes() == data
    assert files_beside(registry) == {"state.json", "state.json.bad", "state.json.lock"}


def test_each_damage_keeps_a_copy_of_its_own(registry: Registry) -> None:
    for text in ("{first", "{second"):
        write(registry, text)
        with pytest.raises(errors.StateFileError):
            registry.remove("web")
    assert Path(registry.path + ".bad").read_text() == "{first"
    assert Path(registry.path + ".bad.1").read_text() == "{second"


# -- several writers ---------------------------------------------------------------------------------------------------

WRITER = """
import sys
from vmnest.registry import Record, Registry
registry, worker = Registry(sys.argv[1]), sys.argv[2]
for number in range(10):
    registry.put(Record(f"w{worker}-{number}"))
    registry.update(f"w{worker}-{number}", state_hint="RUNNING")
"""


def test_eight_processes_with_ten_writes_each_lose_nothing(registry: Registry) -> None:
    workers = [subprocess.Popen([sys.executable, "-c", WRITER, registry.path, str(n)], cwd=ROOT) for n in range(8)]
    assert [worker.wait(timeout=60) for worker in workers] == [0] * 8
    records = registry.all()
    assert {record.name for record in records} == {f"w{worker}-{number}" for worker in range(8) for number in range(10)}
    assert {record.state_hint for record in records} == {"RUNNING"}
    assert files_beside(registry) == {"state.json", "state.json.lock"}


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # a child of a threaded process is the case here
def test_a_child_forked_during_a_change_does_not_keep_the_lock(registry: Registry) -> None:
    """The child inherits the lock's descriptor, and with it, but for an explicit unlock, the lock."""
    reader, writer = os.pipe()
    with _Change(registry):
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.read(reader, 1)  # until the parent is done
            os._exit(0)
    try:
        registry.put(Record("web"))
    finally:
        os.close(writer)
        os.close(reader)
        os.waitpid(child, 0)
    assert registry.get("web") is not None


# -- where it is -------------------------------------------------------------------------------------------------------


def test_the_usual_place_is_in_the_home_folder(tmp_path: Path) -> None:
    place = locate({"HOME": str(tmp_path)})
    assert (place.path, place.note) == (str(tmp_path / ".agent_sandbox" / "state.json"), None)


def test_the_variable_names_another_place(tmp_path: Path) -> None:
    place = locate({"HOME": str(tmp_path), "AGENT_SANDBOX_STATE": "/elsewhere/s.json"})
    assert (place.path, place.note) == ("/elsewhere/s.json", None)


@pytest.mark.parametrize("home", [None, "", "/nonexistent/home", "relative"])
def test_without_a_home_the_local_folder_serves_and_a_note_says_so(tmp_path: Path, home: str | None) -> None:
    environ = {"AGENT_SANDBOX_LOCAL_DIR": str(tmp_path / "local")}
    if home is not None:
        environ["HOME"] = home
    place = locate(environ)
    assert place.path == str(tmp_path / "local" / "state.json")
    assert place.note is not None
    assert place.path in place.note
    assert locate({}).path == f"/tmp/vmnest-{os.geteuid()}/state.json"


def test_a_folder_in_tmp_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "somebody").mkdir()
    (tmp_path / "local").symlink_to(tmp_path / "somebody")
    registry = open_default({"AGENT_SANDBOX_LOCAL_DIR": str(tmp_path / "local")})
    with pytest.raises(errors.LocalCloudError):
        registry.all()
    with pytest.raises(errors.LocalCloudError):
        registry.put(Record("web"))
    assert list((tmp_path / "somebody").iterdir()) == []


def test_the_folder_without_a_home_is_made_private_by_the_first_write(tmp_path: Path) -> None:
    folder = tmp_path / "local"
    registry = open_default({"AGENT_SANDBOX_LOCAL_DIR": str(folder)})
    assert registry.all() == []
    assert not folder.exists()
    registry.put(Record("web"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_what_is_not_recorded_is_told_with_what_is(registry: Registry) -> None:
    assert registry.advise("x").startswith("None is recorded")
    for number in range(8):
        registry.put(Record(f"n{number}", microvm_id=f"microvm-{number}"))
    eight = "Recorded are: n0, n1, n2, n3, n4, n5, n6, n7"
    assert registry.advise("x") == eight
    registry.put(Record("n8"))
    assert registry.advise("x") == f"{eight} and 1 more: vmnest ls"


def test_microvms_are_shown_with_their_names(registry: Registry) -> None:
    registry.put(Record("web", microvm_id="microvm-1"))
    assert registry.show_microvms(["microvm-1", "microvm-2"]) == ["web (microvm-1)", "microvm-2"]
    write(registry, "nonsense")
    assert registry.show_microvms(["microvm-1"]) == ["microvm-1"]  # it is said beside something else


def test_an_id_in_the_place_of_a_name_leads_to_what_has_or_gives_a_name(registry: Registry) -> None:
    registry.put(Record("web", microvm_id="microvm-1"))
    with pytest.raises(errors.SandboxNotFoundError) as caught:
        registry.require("microvm-1")
    assert caught.value.hint == "That is the id of a MicroVM, which has a name: web"
    with pytest.raises(errors.SandboxNotFoundError) as caught:
        registry.require("microvm-2")
    assert "vmnest adopt microvm-2 NAME; vmnest ls --all" in (caught.value.hint or "")
