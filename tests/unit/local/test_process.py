"""What makes a process a daemon. Each test looks at a process of its own: these things cannot be undone."""

import json
import os
import subprocess
import sys

from tests.support.paths import ROOT

LOOK = """
import json, os, resource, signal, sys
from vmnest.local import process
program = os.path.realpath(sys.executable)
os.open(program, os.O_RDONLY)
kept = os.dup(0)
process.leave_session()
process.detach(keep=[kept])
process.open_log(sys.argv[1])
import logging
logging.info("logged")
print("printed", flush=True)
os.write(2, b"raw\\n")
json.dump({
    "cwd": os.getcwd(), "umask": os.umask(0), "session": os.getsid(0) == os.getpid(),
    "fds": {name: os.readlink(f"/proc/self/fd/{name}") for name in ("0", "1", "2")},
    "inherited": program in [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")],
    "kept": os.path.exists(f"/proc/self/fd/{kept}"),
    "blocked": [int(one) for one in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
    "files": resource.getrlimit(resource.RLIMIT_NOFILE), "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
    "tracking": os.environ.get("RUNNER_TRACKING_ID"),
}, open(sys.argv[2], "w"))
"""


def look(tmp_path, code=LOOK):
    log, report = tmp_path / "log", tmp_path / "report"
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "RUNNER_TRACKING_ID": "ci"}
    done = subprocess.run(
        [sys.executable, "-c", code, log, report], cwd=tmp_path, env=environ, capture_output=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return json.loads(report.read_text()), log.read_text(), done


def test_it_leaves_everything_of_its_starter(tmp_path):
    seen, log, done = look(tmp_path)
    assert (seen["cwd"], seen["umask"], seen["blocked"], seen["core"]) == ("/", 0o077, [], 0)
    assert (seen["inherited"], seen["kept"]) == (False, True)
    assert seen["files"][0] == seen["files"][1]
    assert seen["session"]
    assert seen["fds"] == {"0": "/dev/null", "1": str(tmp_path / "log"), "2": str(tmp_path / "log")}
    assert (done.stdout, done.stderr) == (b"", b"")
    assert "INFO MainThread logged" in log
    assert "printed\n" in log
    assert "raw\n" in log


def test_ci_can_still_find_it(tmp_path):
    assert look(tmp_path)[0]["tracking"] == "ci"


def test_the_log_is_for_us_alone_and_rotates(tmp_path):
    filling = 'logging.info("x" * (process.LOG_BYTES // 2))\n'
    code = LOOK.replace('print("printed"', filling * 2 + 'logging.info("after")\nprint("printed"')
    _, log, _ = look(tmp_path, code)
    assert "after" in log
    assert "printed" in log
    assert "logged" in (tmp_path / "log.1").read_text()
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
