"""``python -m vmnest.local --folder DIR --ready-fd N``: the daemon's program, spawned by the client's side.

It writes one line to descriptor N once it serves, or cannot (see ``rendezvous.build_ready``), and closes it. It keeps
the CI systems' variables (``rendezvous.TRACKING_VARIABLES``).

With ``--trial`` instead of a descriptor it is no daemon: it makes one sandbox, removes it, writes to standard output in
one line of JSON what came of it (see ``trial``), and ends.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence

# Everything is imported at the start: the environment that Python was started from may vanish while we run.
from .. import errors, rendezvous, settings
from . import daemon, drivers, process, trial


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m vmnest.local", description="The daemon of the local cloud.")
    parser.add_argument("--folder", required=True, help="the local cloud's folder")
    parser.add_argument("--trial", action="store_true", help="only see whether a sandbox can be made")
    parser.add_argument("--ready-fd", type=int, help="descriptor that gets the ready line")
    parser.add_argument(
        "--idle-seconds",
        type=float,
        default=daemon.IDLE_SECONDS,
        help="end after that long without a running MicroVM (default: %(default)g)",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    """Run a daemon to its end; its exit status."""
    arguments = parse_arguments(argv)
    folder = os.path.abspath(arguments.folder)
    if arguments.trial:
        return _try(folder)

    def ready(line: bytes) -> None:
        process.leave_session()
        if arguments.ready_fd is not None:
            _write_line(arguments.ready_fd, line)

    try:
        rendezvous.prepare_folder(folder)
        process.detach(keep=() if arguments.ready_fd is None else (arguments.ready_fd,))
        process.open_log(os.path.join(folder, rendezvous.LOG_FILE))
    except (errors.VmnestError, OSError) as error:
        known = error if isinstance(error, errors.VmnestError) else errors.LocalDaemonError(f"cannot start: {error}")
        ready(rendezvous.build_not_ready(known))
        return known.exit_status
    config = daemon.Config(folder=folder, environ=dict(settings.environment()), idle_seconds=arguments.idle_seconds)
    return daemon.run(config, ready=ready, select_driver=drivers.select)


def _try(folder: str) -> int:
    # It takes a moment, bounds its waits and removes what it has made: interrupted half-way it would leave some of it.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)
    try:
        found: dict[str, object] = trial.run(folder, environ=settings.environment())
    except errors.VmnestError as error:
        found = {"error": error.to_wire()}
    except OSError as error:  # a full disk, say
        found = {"error": errors.LocalDaemonError(f"a sandbox could not be tried: {error}").to_wire()}
    sys.stdout.write(json.dumps(found))
    return 0


def _write_line(fd: int, line: bytes) -> None:
    with os.fdopen(fd, "wb") as file:
        file.write(line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
