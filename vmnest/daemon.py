"""The client's side of the local daemon: is it there, start it, ask it.

``ensure`` is the only way to the daemon's address: it starts the daemon if none runs. It knows the daemon's program by
its module name alone (``<this package>.local``), and never imports it.

The daemon gets this process's ``sys.path``, and where this package lies, spelt out on its command line: so it finds
what we found, be we a checkout, an install, a copy under another name or a zip archive, and neither the working
directory nor PYTHONPATH can put something else in between.
"""

from __future__ import annotations

import contextlib
import os
import sys

from . import __version__, errors, rendezvous, settings, systems
from .deadline import Deadline, backoff

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence

__all__ = [
    "ask",
    "build_command",
    "build_environment",
    "ensure",
    "find",
    "is_at",
    "is_full",
    "is_older",
    "notes",
    "require_linux",
    "revive",
]

PROGRAM = "local"
SIGNING_NAME = "lambda"
MAX_ANSWER_BYTES = 2**20
REVIVE_SECONDS = 30.0
# With less than this to write to, a start that failed did so for that reason, whatever it says.
_LEAST_ROOM_BYTES = 2**20
_LEAST_FILES = 100


def require_linux(platform: str = sys.platform) -> None:
    """Raise UnsupportedError where there can be no local cloud."""
    if platform != "linux":
        raise errors.UnsupportedError(
            f"local sandboxes need Linux; this is {platform}",
            hint="Use AWS (without --local), or run vmnest inside a Linux machine.",
        )
    if not systems.HAS_FLOCK:
        raise errors.UnsupportedError(
            "local sandboxes need the module fcntl, which this Python lacks",
            hint="Use AWS (without --local), or another Python.",
        )


def find(environ: Mapping[str, str]) -> rendezvous.Daemon | None:
    """The daemon that runs, or None. Starts and writes nothing."""
    require_linux()
    return _running(rendezvous.folder(environ))


def ensure(environ: Mapping[str, str], *, deadline: Deadline) -> rendezvous.Daemon:
    """The daemon that runs; started if there is none.

    Raises:
        errors.UnsupportedError: this is not Linux.
        errors.SettingError: a setting of the daemon has a bad value, also if the daemon has started without it.
        errors.LocalCloudError: it cannot start; the message is its own.
        errors.WaitTimeoutError: it is not ready at the deadline.
    """
    require_linux()
    for name in rendezvous.ITS_SETTINGS:
        settings.resolve(name, environ=environ)
    folder = rendezvous.folder(environ, prepare=True)
    running = _running(folder)
    if running is not None and not is_older(running):
        return running
    with rendezvous.start_lock(folder, deadline):
        # Whoever held the lock before us has started one, most likely.
        running = _running(folder)
        if running is not None and not (is_older(running) and _retire(running, environ=environ, deadline=deadline)):
            return running
        return _start(folder, environ=environ, deadline=deadline)


def revive(environ: Mapping[str, str], *, deadline: Deadline) -> rendezvous.Daemon:
    """A daemon that answers, for a caller whom none has answered.

    One that is killed goes piece by piece: for an instant it may answer no more and still hold its lock.

    Raises:
        errors.LocalCloudError, errors.WaitTimeoutError: as ``ensure``.
        errors.TransportError: whoever is there did not answer for long enough.
    """
    import time

    patience = Deadline(deadline.clamp(REVIVE_SECONDS))
    for delay in backoff(first=0.01, last=0.2):
        running = ensure(environ, deadline=deadline)
        try:
            ask(running, method="GET", path=rendezvous.STATUS_PATH, environ=environ, deadline=patience)
        except errors.TransportError:
            if patience.expired:
                raise
            time.sleep(patience.clamp(delay))
        else:
            return running
    raise AssertionError("backoff ended")


def is_at(url: str, environ: Mapping[str, str]) -> bool:
    """The daemon that runs is what this URL leads to. Nothing is looked at for URLs that lead elsewhere in any case."""
    if sys.platform != "linux" or not systems.HAS_FLOCK or not url.startswith("http://127.0.0.1:"):
        return False
    running = find(environ)
    return running is not None and url.rstrip("/") == running.url.rstrip("/")


def is_older(running: rendezvous.Daemon) -> bool:
    """Whether the daemon is of an older version than this library."""
    return _version_numbers(running.version) < _version_numbers(__version__)


def notes(environ: Mapping[str, str]) -> list[str]:
    """What a user should know of the daemon that runs: it is not what this environment would have started."""
    running = find(environ)
    if running is None:
        return []
    told = []
    if is_older(running):
        told.append(
            f"the local cloud runs version {running.version}, which is older than this vmnest, {__version__}: "
            "a new one replaces it when no sandbox runs"
        )
    elif running.version != __version__:
        told.append(f"the local cloud runs version {running.version}, which is newer than this vmnest, {__version__}")
    for name in rendezvous.ITS_SETTINGS:
        wanted, present = (settings.resolve(name, environ=each) for each in (environ, running.started_with))
        if wanted.source != "default" and not _is_satisfied(name, wanted.value, present.value):
            variable = settings.SETTINGS[name].env
            told.append(
                f"{variable} is not in force: the local cloud was started with another value "
                f"({running.started_with.get(variable, 'the default')}); it takes a new one after: vmnest local down"
            )
    return told


def _is_satisfied(name: str, wanted: object, present: object) -> bool:
    if name == "local_isolation":  # a demand, which a stronger one meets
        return settings.ISOLATIONS.index(str(present)) >= settings.ISOLATIONS.index(str(wanted))
    return wanted == present


def _version_numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isascii() and part.isdigit()]


def _retire(running: rendezvous.Daemon, *, environ: Mapping[str, str], deadline: Deadline) -> bool:
    """End an older daemon if nothing runs in it; the one that we start waits for its lock."""
    try:
        told = ask(running, method="POST", path=rendezvous.RETIRE_PATH, environ=environ, deadline=deadline)
    except (errors.LocalDaemonError, errors.TransportError):
        return False  # it does not know how, or has just gone: whoever calls it next will see
    return told.get("retired") is True


def _running(folder: str) -> rendezvous.Daemon | None:
    return rendezvous.read(folder) if rendezvous.is_alive(folder) else None


# -- starting ----------------------------------------------------------------------------------------------------------


def _start(folder: str, *, environ: Mapping[str, str], deadline: Deadline) -> rendezvous.Daemon:
    reader, writer = os.pipe()
    try:
        try:
            process = _spawn(folder, ready_fd=writer, environ=environ)
        finally:
            os.close(writer)
        line = _read_line(reader, deadline)
        if line is None:
            _end(process)
            raise errors.WaitTimeoutError(
                f"the local daemon was not ready within {deadline.seconds:g} s", hint=_log_hint(folder)
            )
    finally:
        os.close(reader)
    # What we spawned only forked the daemon, and has ended: nothing stays behind that somebody must wait for.
    process.wait()
    try:
        return rendezvous.parse_ready(line)
    except errors.LocalCloudError as error:
        if is_full(folder):
            error.add_hint(f"The disk is full: make room in {folder}, or set AGENT_SANDBOX_LOCAL_DIR to another place.")
        elif isinstance(error, errors.LocalDaemonError) and error.hint is None:
            error.add_hint(_log_hint(folder))
        raise


def is_full(folder: str) -> bool:
    """Whether next to nothing can be written in an existing folder any more."""
    found = os.statvfs(folder)
    counts_files = found.f_files > 0
    return found.f_bavail * found.f_frsize < _LEAST_ROOM_BYTES or (counts_files and found.f_favail < _LEAST_FILES)


def _log_hint(folder: str) -> str:
    return f"Its log may say why: {os.path.join(folder, rendezvous.LOG_FILE)}"


def _spawn(folder: str, *, ready_fd: int, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    import subprocess

    path = os.path.join(folder, rendezvous.LOG_FILE)
    try:
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise rendezvous.unusable(path, error) from error
    try:
        return subprocess.Popen(
            build_command(["--folder", folder, "--ready-fd", str(ready_fd)]),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=build_environment(environ),
            pass_fds=(ready_fd,),
            start_new_session=True,
        )
    except OSError as error:
        raise errors.LocalDaemonError(f"cannot start the local daemon: {error}") from error
    finally:
        os.close(log)


# What a daemon needs of its starter's environment. It outlives the starter and serves others: credentials that the
# starter has, for AWS or anything else, are none of its business.
_PASSED_ON = frozenset(
    {"HOME", "PATH", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "XDG_RUNTIME_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR"}
    | {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}
    | {*rendezvous.TRACKING_VARIABLES}
)


def build_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The daemon's environment: the settings, where things are, the way out, and nothing else of the starter's."""
    own = {setting.env for setting in settings.SETTINGS.values() if not setting.secret}
    return {
        name: value
        for name, value in environ.items()
        if name in own or name.upper() in _PASSED_ON or name.startswith("LC_")
    }


def build_command(arguments: Sequence[str], *, detached: bool = True) -> list[str]:
    """The command that runs the daemon's program under this interpreter and with what it can import."""
    if not sys.executable:
        raise errors.LocalDaemonError("cannot start the local daemon: this interpreter does not know its own program")
    path = [os.path.abspath(entry) for entry in sys.path if entry]
    package, load = _load_package()
    code = (
        # The path is set before anything else is imported: -c has put the working directory first.
        f"import sys; sys.path[:] = {path!r}\n"
        "import os, runpy\n"
        f"{'if os.fork(): os._exit(0)' if detached else ''}\n"
        f"{load}"
        f"runpy.run_module('{package}.{PROGRAM}', run_name='__main__', alter_sys=True)"
    )
    return [sys.executable, "-I", *_interpreter_options(), "-c", code, *arguments]


def _load_package() -> tuple[str, str]:
    """This package's name in the daemon, and the statements that load it from where we have it.

    A copy inside another package goes by its last name there: the packages around it are not the daemon's business, and
    importing them may do anything. Another package of that name, on the path, does not come in between.
    """
    package = __name__.rpartition(".")[0]
    last = package.rpartition(".")[2]
    parent, folder = os.path.split(os.path.dirname(os.path.abspath(__file__)))
    if folder != last:
        return package, ""  # an import hook maps the name to another folder; what it did for us, it does there
    return last, (
        "import importlib.machinery, importlib.util\n"
        f"spec = importlib.machinery.PathFinder.find_spec({last!r}, [{parent!r}])\n"
        f"sys.modules[{last!r}] = module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
    )


def _interpreter_options() -> list[str]:
    # -I makes Python ignore its variables; the ones that say where to write byte code must go on to hold.
    options = ["-B"] if sys.dont_write_bytecode else []
    if sys.pycache_prefix:
        options += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    return options


def _read_line(fd: int, deadline: Deadline) -> bytes | None:
    """What comes up to the line's end or the end of all; None if neither comes in time."""
    import select

    line = b""
    poller = select.poll()  # select() itself ends at descriptor 1023
    poller.register(fd, select.POLLIN)
    while not line.endswith(b"\n") and len(line) < rendezvous.MAX_READY_BYTES:
        left = deadline.remaining()
        if not poller.poll(None if left is None else left * 1000):
            return None
        data = os.read(fd, 65536)
        if not data:
            break
        line += data
    return line


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what did not become ready: it leads a session of its own, and its child is still in that group."""
    import signal

    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


# -- asking ------------------------------------------------------------------------------------------------------------


def ask(
    running: rendezvous.Daemon,
    *,
    method: str,
    path: str,
    environ: Mapping[str, str],
    deadline: Deadline,
) -> dict[str, object]:
    """One call of the daemon's own routes (``rendezvous.STATUS_PATH`` and the like), signed as all others are.

    Raises:
        errors.LocalDaemonError: it refuses, does not answer, or what it answers makes no sense.
        errors.TransportError: it is not there.
    """
    import json

    from . import transport

    url = running.url + path
    headers = _signature(method, url, environ=environ)
    try:
        with transport.shared().send(method, url, headers=headers, deadline=deadline) as response:
            status, answer = response.status, response.read(MAX_ANSWER_BYTES)
    except errors.ReadTimeoutError as error:
        raise errors.LocalDaemonError(
            f"the local daemon, process {running.pid}, does not answer",
            hint=f"If it stays so: kill -9 {running.pid}. The next command starts another one, which takes over.",
        ) from error
    try:
        members = json.loads(answer)
    except ValueError:
        members = None
    if not isinstance(members, dict):
        raise errors.LocalDaemonError(f"the local daemon's answer to {method} {path} is no object (status {status})")
    if status != 200:
        raise errors.LocalDaemonError(f"the local daemon refuses: {members.get('message') or status}", details=members)
    return members


def _signature(method: str, url: str, *, environ: Mapping[str, str]) -> list[tuple[str, str]]:
    from datetime import datetime, timezone

    from .aws import credentials, signing

    keys = rendezvous.keys(rendezvous.folder(environ))
    return signing.sign(
        method=method,
        url=url,
        headers=(),
        body_sha256=signing.EMPTY_SHA256,
        credentials=credentials.Credentials(keys.access_key, credentials.Secret(keys.secret_key)),
        region=rendezvous.REGION,
        service=SIGNING_NAME,
        when=datetime.now(timezone.utc),
    )
