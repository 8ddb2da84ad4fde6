"""Run code that nobody has vetted in a sandbox of its own, and print what it prints.

python tools/examples/run_code.py            on AWS
python tools/examples/run_code.py --local    on this machine; so does AGENT_SANDBOX_TARGET=local
"""

from __future__ import annotations

import argparse
import sys

from vmnest import Sandbox, VmnestError

CODE = """
import platform
print("Hello from a microVM!")
print("Here is Python", platform.python_version(), "on", platform.machine())
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Run a few lines of Python in a sandbox.")
    parser.add_argument("--local", action="store_true", default=None, help="on this machine, whatever else is set")
    options = parser.parse_args()
    with Sandbox.create(local=options.local) as sandbox:  # leaving the block ends the sandbox, whatever happens in it
        result = sandbox.exec("python3", ["-c", CODE], timeout=60, check=True)
        print(result.stdout_text, end="")


if __name__ == "__main__":
    try:
        main()
    except VmnestError as error:
        sys.exit("\n".join(filter(None, (error.message, error.hint))))
