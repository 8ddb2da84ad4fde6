"""Our files over the upstream package's agent, which has nothing but the base contract; JSON on standard output.

Run by ``tests/functional/test_minimal_agent.py`` inside a network namespace of its own, since that agent binds all
interfaces: ``python -m tests.support.upstream_files UPSTREAM_PYTHON FOLDER``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.upstream_dialogue import PORT, upstream_agent
from vmnest import errors
from vmnest.agent.client import AgentClient
from vmnest.deadline import Deadline
from vmnest.sandbox.files import Files
from vmnest.transport import Transport

LARGE = 50_000_000
Step = Callable[[Files, Path], object]


def main(python: str, folder: Path) -> None:
    transport = Transport(environ={})
    client = AgentClient(
        f"http://127.0.0.1:{PORT}", headers=lambda _refused: [], transport=transport, port=PORT, wake=0.5
    )
    with upstream_agent(python, folder):
        client.wait_ready(deadline=Deadline(60))
        files = Files(lambda _deadline: client)
        results = {name: outcome(step, files, folder) for name, step in STEPS.items()}
        results["left over"] = [name for name in os.listdir("/tmp") if name.startswith(".vmnest-")]
    transport.close()
    json.dump(results, sys.stdout)


def outcome(step: Step, files: Files, folder: Path) -> Any:
    begin = time.monotonic()
    (folder / "step").mkdir()
    try:
        value = step(files, folder / "step")
    except errors.VmnestError as error:
        value = {"error": type(error).__name__, "message": error.message}
    subprocess.run(["rm", "-rf", str(folder / "step")], check=True)
    return {"value": value, "seconds": time.monotonic() - begin}


def small(files: Files, folder: Path) -> object:
    data = bytes(range(256))
    path = os.fsdecode(os.fsencode(folder) + b"/new/a b%\xff\n")
    return {
        "written": files.write(path, data, mode=0o640),
        "read": files.read(path) == data,
        "mode": files.stat(path).mode,
    }


def large(files: Files, folder: Path) -> object:
    block = os.urandom(1_000_000)
    with open(folder / "local", "wb") as local:
        for _ in range(LARGE // len(block)):
            local.write(block)
    files.upload(folder / "local", str(folder / "remote"))
    files.download(str(folder / "remote"), folder / "back")
    told = subprocess.check_output(["sha256sum", "local", "remote", "back"], cwd=folder, text=True)
    part = files.read(str(folder / "remote"), offset=999_999, length=2)
    return {"same": len({line.split()[0] for line in told.splitlines()}) == 1, "part": part == block[-1:] + block[:1]}


def tree(files: Files, folder: Path) -> object:
    top = folder / "tree"
    (top / "sub" / ("n" * 200)).mkdir(parents=True)
    (top / "sub" / ("n" * 200) / "é\n").write_bytes(b"x" * 100_000)
    (top / "empty").mkdir()
    (top / "run").write_bytes(b"#!")
    (top / "run").chmod(0o755)
    os.symlink("run", top / "link")
    told = files.upload(top, str(folder / "remote"))
    back = files.download(str(folder / "remote"), folder / "back", exclude=["empty"])
    differs = subprocess.run(
        ["diff", "-r", "--no-dereference", str(top), str(folder / "back")], capture_output=True, text=True
    ).stdout
    return {
        "told": told[:4],
        "back": back[:4],
        "differs": differs.replace(str(folder), ""),
        "mode": (folder / "back" / "run").stat().st_mode & 0o777,
    }


def names(files: Files, folder: Path) -> object:
    files.mkdir(f"{folder}/a/b")
    files.write(f"{folder}/a/b/f", b"abc")
    os.symlink("nowhere", folder / "a" / "link")
    files.copy(f"{folder}/a", f"{folder}/c", recursive=True)
    files.rename(f"{folder}/c/b/f", f"{folder}/c/g")
    files.chmod(f"{folder}/c/g", 0o600)
    entries = [
        (entry.path.removeprefix(str(folder)), entry.type, entry.target) for entry in files.scan(f"{folder}", depth=3)
    ]
    digest = files.stat(f"{folder}/c/g", sha256=True).sha256 == hashlib.sha256(b"abc").hexdigest()
    files.remove(f"{folder}/c", recursive=True)
    return {"entries": entries, "digest": digest, "gone": not files.exists(f"{folder}/c")}


def fifo(files: Files, folder: Path) -> object:
    os.mkfifo(folder / "fifo")
    return files.read(f"{folder}/fifo").hex()


def write_fifo(files: Files, folder: Path) -> object:
    os.mkfifo(folder / "fifo")
    return files.write(f"{folder}/fifo", b"x")


def streams(files: Files, folder: Path) -> object:
    with files.open_write(f"{folder}/f") as file:
        file.write(b"line 1\nline 2\n")
    with files.open_read(f"{folder}/f", offset=7) as reader:
        return reader.read().decode()


def memory(_files: Files, _folder: Path) -> object:
    """The most that this process ever had. (getrusage() counts what its parent had.)"""
    (kibibytes,) = re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return int(kibibytes) * 1024


STEPS: dict[str, Step] = {
    "small": small,
    "streams": streams,
    "names": names,
    "tree": tree,
    "fifo": fifo,
    "write fifo": write_fifo,
    "absent": lambda files, folder: files.read(f"{folder}/absent").hex(),
    "absent folder": lambda files, folder: files.list(f"{folder}/absent"),
    "full": lambda files, folder: files.remove("/proc", recursive=False),
    "large": large,
    "memory": memory,
}

if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
