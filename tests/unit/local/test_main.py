"""The daemon's program: its command line, and the descriptor for the ready line."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.support.paths import ROOT
from vmnest.local import __main__ as program
from vmnest.local import daemon


def test_the_command_line_is_parsed():
    parsed = program.parse_arguments(["--folder", "/x", "--ready-fd", "7"])
    assert (parsed.folder, parsed.ready_fd, parsed.idle_seconds) == ("/x", 7, daemon.IDLE_SECONDS)


def test_a_folder_is_needed(capsys):
    with pytest.raises(SystemExit) as caught:
        program.parse_arguments([])
    assert caught.value.code == 2
    assert "--folder" in capsys.readouterr().err


def test_a_folder_that_cannot_be_used_is_told_on_the_descriptor(tmp_path):
    (tmp_path / "file").write_text("")
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as pipe:
        command = [sys.executable, "-m", "vmnest.local", "--folder", tmp_path / "file", "--ready-fd", str(writer)]
        process = subprocess.Popen(command, cwd=ROOT, pass_fds=[writer])
        os.close(writer)
        told = json.loads(pipe.read())
        assert process.wait(30) == 1
    assert told["error"]["code"] == "local_cloud"
    assert str(tmp_path / "file") in told["error"]["message"]


def test_a_trial_writes_what_it_found_and_starts_no_daemon(tmp_path):
    command = [sys.executable, "-m", "vmnest.local", "--folder", tmp_path / "new", "--trial"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    assert json.loads(done.stdout)["isolation"] == "namespace"
    assert os.listdir(tmp_path) == []


def test_a_trial_that_cannot_be_made_is_told_as_an_error(tmp_path):
    command = [sys.executable, "-m", "vmnest.local", "--folder", tmp_path, "--trial"]
    environ = {**os.environ, "AGENT_SANDBOX_LOCAL_ISOLATION": "vm"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, check=True)
    assert json.loads(done.stdout)["error"]["code"] == "isolation_unavailable"


def test_a_trial_is_not_interrupted_half_way(tmp_path):
    command = [sys.executable, "-m", "vmnest.local", "--folder", tmp_path, "--trial"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while process.poll() is None and not os.listdir(tmp_path):
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        told, _ = process.communicate(timeout=60)
    assert json.loads(told)["isolation"] == "namespace"
    assert os.listdir(tmp_path) == []
