"""Process 1 of a container: forwards signals, reaps what is orphaned, and ends with the agent's status.

Process 1 has duties that a threaded agent cannot take on: any child of any process may become its own. So the agent
runs as a child of this loop, forked before the first thread and before anything large is imported.
"""

from __future__ import annotations

import os
import signal

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def split() -> None:
    """Fork. The child returns and goes on as the agent; the parent reaps until the child has ended, and exits."""
    mask = {*_FORWARDED, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, mask)
    agent = os.fork()
    if agent == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, mask)
        return
    os._exit(_watch(agent, mask))


def _watch(agent: int, mask: set[signal.Signals]) -> int:
    """Serve as process 1 until ``agent`` has ended; its exit status."""
    while True:
        number = signal.sigwait(mask)
        if number == signal.SIGCHLD:
            status = _reap_all(agent)
            if status is not None:
                return status
        else:
            os.kill(agent, number)


def _reap_all(agent: int) -> int | None:
    """Reap every child that has ended. The exit status of ``agent`` if it was among them."""
    result = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return result
        if pid == 0:
            return result
        if pid == agent:
            code = os.waitstatus_to_exitcode(status)
            result = code if code >= 0 else 128 - code
