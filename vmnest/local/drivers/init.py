"""Process 1 of a sandbox: builds what the main process sees, gives up every privilege, starts it and reaps.

Stand-alone (see ``runtime``). It is forked from the supervisor, whose modules it shares, and must not import: after
the pivot the interpreter's files are gone. It stays as process 1 and is not dumpable, so that the untrusted program
can neither look into it nor reach its one descriptor, the pipe to the supervisor; signals from inside do not end it.

On that pipe go lines: ``failed STEP ERRNO SUBJECT``, or ``built``, ``started`` and at the end ``exit N`` or
``signal N``; and ``stopped`` whenever everybody was stopped on request (see ``stopping``). After ``built`` it waits
for a byte on the pipe *go*, FREE or PINNED: then the limits hold.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the C half of signal, whose other half imports enum: 4 ms
import errno
import fcntl
import os
import resource
import select

from . import kernel, mounts, seccomp, stopping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

HOME = "/work"
FREE = b"f"
PINNED = b"p"  # it has CPUs that it must not leave
READY_DESCRIPTOR = 3
_OPEN_FILES = 65536


class StepFailedError(Exception):
    """A step of the start failed.

    Attributes:
        step: Its name.
        number: The errno.
        subject: The path in question, or "-".
    """

    def __init__(self, step: str, error: OSError) -> None:
        super().__init__(step, error)
        self.step = step
        self.number = error.errno or 0
        self.subject = str(error.filename or "-").replace(" ", "_")


class Main:
    """The main process: argv, environment, directory, ends of pipes that become its descriptors (or -1), limits."""

    __slots__ = ("argv", "console", "environment", "file_bytes", "processes", "ready", "workdir")

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        *,
        console: int,
        ready: int,
        processes: int,
        file_bytes: int,
        workdir: str = HOME,
    ) -> None:
        self.argv = list(argv)
        self.environment = dict(environment)
        self.console = console
        self.ready = ready
        self.processes = processes
        self.file_bytes = file_bytes
        self.workdir = workdir


def take(step: str, action: Callable[[], object]) -> None:
    """Run one step; its OSError becomes a StepFailedError."""
    try:
        action()
    except OSError as error:
        raise StepFailedError(step, error) from error


def run(plan: mounts.Plan, main: Main, *, report: int, go: int, stage: bool) -> None:
    """Be process 1. Never returns.

    Args:
        plan: What to build.
        main: What to start then.
        report: The pipe to the supervisor.
        go: The pipe on which it says that the limits hold.
        stage: Whether the stage is still to be made.
    """
    status = 1
    try:
        _prepare(plan, report=report, stage=stage)
        _say(report, "built")
        pinned = _await_limits(go)
        _limit(main)
        _confine(pinned=pinned)
        process = _start(main, report)
        _say(report, "started")
        _say(report, _reap_until(process))
        status = 0
    except StepFailedError as failure:
        _say(report, f"failed {failure.step} {failure.number} {failure.subject}")
    except Exception as error:  # the last line of a program: nobody above could tell it
        _say(report, f"failed internal 0 {ascii(error).replace(' ', '_')}")
    finally:
        os._exit(status)


def _say(report: int, line: str) -> None:
    try:
        os.write(report, line.encode("ascii", "replace") + b"\n")
    except BrokenPipeError:
        os._exit(1)  # the supervisor is gone, and with it the reason to be


def _prepare(plan: mounts.Plan, *, report: int, stage: bool) -> None:
    os.umask(0o022)
    take("mount-namespace", mounts.isolate)
    if stage:
        take("stage", lambda: mounts.stage(plan))
    for name, action in mounts.STEPS:
        take(name, lambda action=action: action(plan))  # type: ignore[misc]
    take("title", lambda: kernel.set_title("vmnest-init"))
    # From here on no credentials change any more, so the signal stays armed. The supervisor may be dead already.
    take("tether", kernel.die_with_parent)
    poll = select.poll()
    poll.register(report, 0)
    if poll.poll(0):
        os._exit(1)
    stopping.obey(lambda: _say(report, "stopped"))


def _await_limits(go: int) -> bool:
    """Wait until the supervisor put us under the VM's limits; whether we must not leave our CPUs."""
    word = os.read(go, 1)
    if not word:
        os._exit(1)  # the supervisor is gone
    # The groups that we are in now are the ones that /proc is to show as the root.
    take("namespaces", mounts.hide_groups)
    return word == PINNED


def _limit(main: Main) -> None:
    def action() -> None:
        _lower(resource.RLIMIT_NPROC, main.processes)
        _lower(resource.RLIMIT_FSIZE, main.file_bytes)
        _lower(resource.RLIMIT_NOFILE, _OPEN_FILES)
        _lower(resource.RLIMIT_CORE, 0)

    take("limits", action)


def _lower(kind: int, value: int) -> None:
    """Set both limits to ``value``, or to the inherited hard one if that is less."""
    _, hard = resource.getrlimit(kind)
    allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (allowed, allowed))


def _confine(*, pinned: bool) -> None:
    take("keyring", kernel.leave_keyrings)
    take("capabilities", kernel.drop_capabilities)
    take("no-new-privileges", kernel.forbid_new_privileges)
    take("seccomp", lambda: kernel.install_filter(seccomp.build_filter(os.uname().machine, pinned=pinned)))
    take("dumpable", lambda: kernel.set_dumpable(False))


def _start(main: Main, report: int) -> int:
    """Fork the main process and wait until its exec is through; returns its pid."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        _become(main, writer)
    _keep_only(report, reader)
    _signal.signal(_signal.SIGTERM, lambda _number, _frame: _forward(process))
    failure = os.read(reader, 64)
    os.close(reader)
    if failure:
        raise StepFailedError("exec", OSError(int(failure), "exec", main.argv[0]))
    return process


def _forward(process: int) -> None:
    try:
        os.kill(process, _signal.SIGTERM)
    except ProcessLookupError:
        return  # it has just ended


def _keep_only(report: int, reader: int) -> None:
    """Close all descriptors but these two; 0 to 2 become the inner /dev/null."""
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    kernel.close_all_but((0, 1, 2, report, reader))


def _become(main: Main, failure: int) -> None:
    """In the fork: take the main process's descriptors, session and directory, and exec."""
    number = errno.EIO
    try:
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        os.setsid()
        os.chdir(main.workdir)
        os.umask(0o022)
        # Python ignores these two for itself, and an ignored signal stays ignored through exec.
        for signal in (_signal.SIGPIPE, _signal.SIGXFSZ):
            _signal.signal(signal, _signal.SIG_DFL)
        kept = _arrange(null=null, console=main.console, ready=main.ready, failure=failure)
        kernel.close_all_but(range(kept + 1))
        os.set_inheritable(kept, False)
        failure = kept
        _exec(main)
    except OSError as error:
        number = error.errno or number
    finally:
        os.write(failure, str(number).encode())
        os._exit(127)


def _exec(main: Main) -> None:
    """Exec the first that can be, of the places where PATH says the program may be. (os.execvpe would import.)"""
    name = main.argv[0]
    places = [name] if "/" in name else [f"{folder}/{name}" for folder in main.environment["PATH"].split(":")]
    failure: OSError | None = None
    for place in places:
        try:
            os.execve(place, main.argv, main.environment)
        except (FileNotFoundError, NotADirectoryError) as error:
            failure = failure or error
        except PermissionError as error:
            failure = error
    assert failure is not None
    raise failure


def _arrange(*, null: int, console: int, ready: int, failure: int) -> int:
    """Put null on 0, the console on 1 and 2, ready on 3 and the failure pipe behind; returns the latter's place.

    All sources are first moved above the targets, so that no move overwrites another's source.
    """
    high = [_move_up(descriptor) for descriptor in (null, console, failure)]
    if ready >= 0:
        ready = _move_up(ready)
    os.dup2(high[0], 0)
    os.dup2(high[1], 1)
    os.dup2(high[1], 2)
    place = READY_DESCRIPTOR
    if ready >= 0:
        os.dup2(ready, place)
        place += 1
    return os.dup2(high[2], place)


def _move_up(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, READY_DESCRIPTOR + 2)


def _reap_until(process: int) -> str:
    """Reap whatever ends until the main process does; how it ended, as a line."""
    while True:
        ended, status = os.wait()
        if ended == process:
            break
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    return f"exit {os.WEXITSTATUS(status)}"
