"""Notes about VMs, as a daemon writes them and the next one reads them."""

import json
import os
import stat

import pytest

from vmnest.local import built, ledger, options, records
from vmnest.wire import names

POLICY = {"maxIdleDurationSeconds": 60, "suspendedDurationSeconds": 0, "autoResumeEnabled": True}


def spec(**changes):
    fields = {
        "image_arn": "arn:aws:lambda:us-east-1:000000000000:microvm-image:local",
        "image_version": "1.0",
        "execution_role_arn": None,
        "idle_policy": POLICY,
        "max_seconds": 60,
        "ingress": ("in",),
        "egress": (),
        "kms_key": None,
        "payload": "hush",
        "options": options.Options(cpus=1.5, memory_mib=512),
    }
    return records.Spec(**{**fields, **changes})


def record(microvm_id="microvm-1", *, number=1, client_token="token", **changes):
    return records.Record(
        microvm_id,
        spec(**changes),
        number=number,
        started_at=1000.5,
        endpoint="http://127.0.0.1:1234",
        client_token=client_token,
    )


@pytest.fixture
def kept(tmp_path):
    return ledger.Ledger(str(tmp_path))


@pytest.fixture
def files(tmp_path):
    """The names of the files that there are."""
    return lambda: sorted(os.listdir(tmp_path / "records"))


def test_there_is_nothing_at_first_and_looking_writes_nothing(kept, tmp_path):
    assert kept.load() == []
    assert os.listdir(tmp_path) == []


def test_a_vm_comes_back_as_it_was_noted(kept):
    kept.save(record())
    assert kept.load() == [
        ledger.Note(
            microvm_id="microvm-1",
            number=1,
            spec=spec(),
            client_token="token",
            fingerprint=spec().fingerprint,
            endpoint="http://127.0.0.1:1234",
            started_at=1000.5,
            state=names.PENDING,
            state_reason=None,
            suspended_at=None,
            terminated_at=None,
        )
    ]


IMAGE = built.Built(
    layers=("b", "a"),
    config=built.RunConfig(("serve",), {"A": "1"}, "/srv", ("80/tcp",), built.hooks.Config(ready=60, run=1)),
)


def test_what_a_vm_runs_comes_back(kept):
    kept.save(record(built=IMAGE))
    assert kept.load()[0].spec == spec(built=IMAGE)


def test_notes_of_older_versions_know_the_built_in_image_only(kept, tmp_path):
    kept.save(record())
    path = tmp_path / "records" / "microvm-1.json"
    note = json.loads(path.read_text())
    del note["spec"]["built"]
    path.write_text(json.dumps(note))
    assert kept.load()[0].spec == spec()


def test_the_latest_note_counts(kept, files):
    one = record()
    kept.save(one)
    one.ledger = kept
    with one.changed:
        one.advance(records.GONE, at=2000, reason="Success.")
    note = kept.load()[0]
    assert (note.state, note.state_reason, note.terminated_at) == (names.TERMINATED, "Success.", 2000)
    assert files() == ["microvm-1.json"]


@pytest.mark.parametrize("state", [state for state in names.STATES if state != names.PENDING])
def test_the_payload_is_noted_only_until_the_hook_was_called(kept, tmp_path, state):
    one = record()
    kept.save(one)
    one.state = state
    kept.save(one)
    assert b"hush" not in (tmp_path / "records" / "microvm-1.json").read_bytes()
    assert kept.load()[0].spec.payload is None


def test_a_call_is_known_again_without_its_payload(kept):
    one = record()
    one.state = names.RUNNING
    kept.save(one)
    assert kept.load()[0].fingerprint == spec().fingerprint
    assert kept.load()[0].fingerprint != spec(payload="other").fingerprint


def test_notes_come_in_the_order_of_the_starts(kept):
    for number in (3, 1, 2):
        kept.save(record(f"microvm-{9 - number}", number=number))
    assert [note.number for note in kept.load()] == [1, 2, 3]


def test_a_note_is_for_its_owner_alone(kept, tmp_path):
    kept.save(record())
    assert stat.S_IMODE(os.stat(tmp_path / "records").st_mode) == 0o700
    assert stat.S_IMODE(os.stat(tmp_path / "records" / "microvm-1.json").st_mode) == 0o600


def test_what_is_forgotten_is_gone(kept, files):
    kept.save(record())
    kept.forget("microvm-1")
    kept.forget("microvm-1")
    assert files() == []


def damage(**changes):
    def change(members):
        for path, value in changes.items():
            *above, last = path.split("__")
            for name in above:
                members = members[name]
            members[last] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        damage(schema=2),
        damage(state="FAILED"),
        damage(number=True),
        damage(endpoint=None),
        damage(microvm_id="microvm-2"),
        damage(spec=None),
        damage(spec__ingress="in"),
        damage(spec__options={"size": 1}),
    ],
    ids=["schema", "state", "number", "endpoint", "id", "spec", "ingress", "options"],
)
def test_a_note_that_makes_no_sense_is_put_aside(kept, tmp_path, files, caplog, change):
    kept.save(record())
    path = tmp_path / "records" / "microvm-1.json"
    members = json.loads(path.read_bytes())
    change(members)
    path.write_text(json.dumps(members))
    assert kept.load() == []
    assert files() == ["microvm-1.json.bad"]
    assert str(path) in caplog.text
    assert kept.load() == []


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff"], ids=repr)
def test_a_damaged_note_does_not_hide_the_others(kept, tmp_path, files, text):
    kept.save(record("microvm-2"))
    (tmp_path / "records" / "microvm-1.json").write_bytes(text)
    assert [note.microvm_id for note in kept.load()] == ["microvm-2"]
    assert files() == ["microvm-1.json.bad", "microvm-2.json"]


def test_half_a_note_of_a_daemon_that_was_killed_is_removed(kept, tmp_path, files):
    kept.save(record())
    (tmp_path / "records" / "microvm-2.tmp").write_text("{")
    assert len(kept.load()) == 1
    assert files() == ["microvm-1.json"]


def test_what_is_no_file_is_left_alone(kept, tmp_path, files):
    kept.save(record())
    (tmp_path / "records" / "folder").mkdir()
    (tmp_path / "records" / "folder.json").mkdir()
    os.mkfifo(tmp_path / "records" / "pipe.json")
    assert [note.microvm_id for note in kept.load()] == ["microvm-1"]
    assert files() == ["folder", "folder.json", "microvm-1.json", "pipe.json"]


def test_a_note_that_cannot_be_written_is_a_line_in_the_log(kept, tmp_path, caplog):
    (tmp_path / "records").write_text("in the way")
    kept.save(record())
    kept.forget("microvm-1")
    assert "microvm-1: that it is PENDING could not be noted" in caplog.text
    assert "microvm-1: its note could not be removed" in caplog.text


def test_a_note_that_does_not_fit_leaves_the_one_before(kept, tmp_path, caplog):
    kept.save(record())
    full = tmp_path / "records" / "microvm-1.tmp"
    full.symlink_to("/dev/full")
    one = record()
    one.state = names.RUNNING
    kept.save(one)
    assert "No space left on device" in caplog.text
    assert kept.load()[0].state == names.PENDING
