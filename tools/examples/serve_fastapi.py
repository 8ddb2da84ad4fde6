"""Serve a FastAPI application in a sandbox, and open it in the browser of this machine.

    python tools/examples/serve_fastapi.py            on AWS
    python tools/examples/serve_fastapi.py --local    on this machine; so does AGENT_SANDBOX_TARGET=local

Then open http://localhost:8000. Ctrl+C ends the sandbox and everything in it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile

from vmnest import Process, Sandbox, VmnestError

PORT = 8000  # where the application listens in the sandbox
APP = """
import platform

from fastapi import FastAPI

app = FastAPI()


@app.get("/")
def hello() -> dict[str, str]:
    return {"message": "Hello from a microVM!", "python": platform.python_version()}
"""
ASK_FOR_ITS_KIND = "import platform, sys; print('%d.%d' % sys.version_info[:2], platform.machine())"


def install(sandbox: Sandbox, *packages: str, folder: str) -> None:
    """Fetch packages here, for the sandbox's Python, and send them there: a sandbox may well have no network."""
    version, machine = sandbox.exec("python3", ["-c", ASK_FOR_ITS_KIND], check=True).stdout_text.split()
    with tempfile.TemporaryDirectory() as here:
        kind = ["--python-version", version, "--platform", f"manylinux2014_{machine}", "--only-binary", ":all:"]
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", *kind]
        subprocess.run([*pip, "--target", here, *packages], check=True)
        sandbox.files.upload(here, folder)


def wait_until_it_serves(server: Process) -> None:
    """Show what the server prints until it is ready."""
    for line in server.lines(timeout=60):
        print(line.text)
        if "running on" in line.text:
            return
    sys.exit(f"The server has ended: exit code {server.wait()}.")


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve a FastAPI application from a sandbox.")
    parser.add_argument("--local", action="store_true", default=None, help="on this machine, whatever else is set")
    parser.add_argument("--port", type=int, default=8000, help="where to open it here; 0: any free port (%(default)s)")
    options = parser.parse_args()
    with Sandbox.create(local=options.local) as sandbox:
        install(sandbox, "fastapi", "uvicorn", folder="/work/packages")
        sandbox.files.write("/work/app.py", APP)
        uvicorn = ["-m", "uvicorn", "app:app", "--port", str(PORT)]
        environment = {"PYTHONPATH": "/work/packages"}
        # Nobody reads what it prints later on: "drop" lets it go on all the same.
        with sandbox.spawn("python3", uvicorn, cwd="/work", env=environment, retain="drop") as server:
            wait_until_it_serves(server)
            with sandbox.forward(PORT, local_port=options.port) as forwarding:
                print(f"Open {forwarding.url} - Ctrl+C ends it.", flush=True)
                forwarding.wait()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("Bye.")
    except VmnestError as error:
        sys.exit("\n".join(filter(None, (error.message, error.hint))))
    except subprocess.CalledProcessError:
        sys.exit("pip could not fetch the packages; it says above why.")
