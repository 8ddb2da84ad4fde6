"""Where the local cloud's daemon lives: its folder, locks, keys and address. Shared by those who call it and itself.

The daemon is alive as long as ``daemon.lock`` is held: the kernel drops the lock with the process, so no stale file and
no reused pid can fool anybody. A starter takes ``start.lock``, looks again, spawns, and lets go once the daemon is
ready; a daemon that ends for want of work takes ``start.lock`` first, so that nobody is sent to one that is leaving.
This module is on the way of every command: it imports little.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import stat

from . import deadline as deadlines
from . import errors, settings, systems

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

__all__ = [
    "ITS_SETTINGS",
    "KEYS_FILE",
    "LOG_FILE",
    "LOOPBACK",
    "MAX_READY_BYTES",
    "NOTES_FOLDER",
    "REGION",
    "RETIRE_PATH",
    "SHUTDOWN_PATH",
    "STATUS_PATH",
    "TRACKING_VARIABLES",
    "VMS_FOLDER",
    "Daemon",
    "Keys",
    "Lock",
    "build_not_ready",
    "build_ready",
    "daemon_lock",
    "environment",
    "error_from_wire",
    "folder",
    "has_note",
    "has_vms",
    "is_alive",
    "keep_port",
    "kept_port",
    "keys",
    "parse_ready",
    "prepare_folder",
    "read",
    "remove_daemon",
    "start_lock",
    "state_folder",
    "unusable",
    "write_daemon",
    "write_file",
]

DAEMON_FILE = "daemon.json"
DAEMON_LOCK = "daemon.lock"
START_LOCK = "start.lock"
KEYS_FILE = "keys.json"
PORT_FILE = "control-port"
LOG_FILE = "daemon.log"
VMS_FOLDER = "vms"  # has a folder for each MicroVM that has not ended
NOTES_FOLDER = "records"  # has a file for each MicroVM that the daemon lists

STATUS_PATH = "/vmnest/status"
SHUTDOWN_PATH = "/vmnest/shutdown"
RETIRE_PATH = "/vmnest/retire"  # ends the daemon if nothing runs; its answer's member "retired" says whether

# By these CI systems find, and end, what a job has left behind: the daemon and its supervisors keep them.
TRACKING_VARIABLES = ("RUNNER_TRACKING_ID", "BUILD_ID", "JENKINS_NODE_COOKIE")
# The settings that the daemon reads when it starts.
ITS_SETTINGS = ("local_isolation", "local_visible", "local_disk")
# The services that the daemon answers, as they are spelt in AWS_ENDPOINT_URL_<SERVICE>.
SERVED = ("LAMBDA_MICROVMS", "LAMBDA_CORE", "S3", "IAM", "STS", "CLOUDWATCH_LOGS")
REGION = "us-east-1"
LOOPBACK = "127.0.0.1"

MAX_FILE_BYTES = 65536
MAX_READY_BYTES = 65536
_LOCK_POLL_SECONDS = 0.05


class Daemon:
    """The address of a running daemon, as ``daemon.json`` tells it.

    Attributes:
        url: Its control plane.
        version: Its version of vmnest.
        pid: Its process.
        started_with: Its own settings that were set when it started, by their variables.
    """

    __slots__ = ("pid", "started_with", "url", "version")

    def __init__(self, *, url: str, version: str, pid: int, started_with: Mapping[str, str] | None = None) -> None:
        self.url = url
        self.version = version
        self.pid = pid
        self.started_with = dict(started_with or {})

    def __repr__(self) -> str:
        return f"Daemon(url={self.url!r}, version={self.version!r}, pid={self.pid})"


class Keys:
    """The key pair that requests to the local cloud are signed with. The secret does not print."""

    __slots__ = ("access_key", "secret_key")

    def __init__(self, *, access_key: str, secret_key: str) -> None:
        self.access_key = access_key
        self.secret_key = secret_key

    def __iter__(self) -> Iterator[str]:
        return iter((self.access_key, self.secret_key))

    def __repr__(self) -> str:
        return f"Keys(access_key={self.access_key!r}, secret_key=[secret])"


# -- the folder --------------------------------------------------------------------------------------------------------


def folder(environ: Mapping[str, str] | None = None, *, prepare: bool = False) -> str:
    """The local cloud's folder: AGENT_SANDBOX_LOCAL_DIR, else ``~/.agent_sandbox/local``, else ``/tmp/vmnest-<uid>``.

    Args:
        environ: The environment to read; the process's own by default.
        prepare: Make the folder (0700) and check that it is ours alone.

    Raises:
        errors.LocalCloudError: ``prepare`` is set, and the folder cannot be made or belongs to somebody else.
    """
    environ = settings.environment() if environ is None else environ
    configured = settings.text("local_dir", environ=environ)
    if configured is not None:
        path = os.path.abspath(configured)
    else:
        base, is_fallback = state_folder(environ)
        path = base if is_fallback else os.path.join(base, "local")
    if prepare:
        prepare_folder(path)
    return path


def state_folder(environ: Mapping[str, str]) -> tuple[str, bool]:
    """``~/.agent_sandbox`` and False, or ``/tmp/vmnest-<uid>`` and True where there is no home folder to write to."""
    uid = systems.user_id()
    home = environ.get("HOME", "")
    if uid is None and not home:  # Windows
        home = environ.get("USERPROFILE", "")
    path = os.path.join(home, ".agent_sandbox")
    if os.path.isabs(home) and os.access(path if os.path.isdir(path) else home, os.W_OK | os.X_OK):
        return path, False
    if uid is None:
        return os.path.join(environ.get("TEMP", os.sep), "vmnest"), True
    return f"/tmp/vmnest-{uid}", True  # noqa: S108 - its owner and mode are checked before use


def prepare_folder(path: str) -> None:
    """Make ``path`` with mode 0700, or check that it is ours and close it to others.

    Raises:
        errors.LocalCloudError: it cannot be made, is no directory, or belongs to somebody else.
    """
    try:
        parent = os.path.dirname(path)
        if parent:
            systems.make_private_folder(parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        _check_ours(path)
    except OSError as error:
        raise _no_folder("prepare", path, error) from error


def _no_folder(verb: str, path: str, error: OSError) -> errors.LocalCloudError:
    return errors.LocalCloudError(
        f"cannot {verb} the folder of the local cloud, {path}: {error.strerror or error}",
        hint="Set AGENT_SANDBOX_LOCAL_DIR to a folder that you own.",
    )


def _check_ours(path: str) -> None:
    # lstat: in /tmp anybody can plant a symbolic link that leads to a folder of ours.
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "it is not a directory (a symbolic link is not followed)")
    uid = systems.user_id()
    if uid is not None and status.st_uid != uid:
        raise PermissionError(errno.EPERM, f"it belongs to uid {status.st_uid}, not to us ({uid})")
    if stat.S_IMODE(status.st_mode) & 0o077:
        os.chmod(path, 0o700)


# -- locks -------------------------------------------------------------------------------------------------------------


class Lock:
    """An exclusive lock on a file; held from ``take`` (or entering) until ``release`` (or leaving, or process end)."""

    def __init__(self, path: str, *, deadline: deadlines.Deadline, what: str) -> None:
        self._path = path
        self._deadline = deadline
        self._what = what
        self._fd = -1

    def take(self) -> None:
        """Wait for the lock.

        Raises:
            errors.WaitTimeoutError: somebody else held it until the deadline.
            errors.LocalCloudError: the folder cannot be written to.
        """
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | systems.CLOEXEC, 0o600)
        except OSError as error:
            raise unusable(self._path, error) from error
        try:
            # flock has no timeout of its own; the lock is contended for the length of a daemon's start at most.
            while not _try_lock(fd):
                self._deadline.check(self._what)
                deadlines.SYSTEM_CLOCK.sleep(self._deadline.clamp(_LOCK_POLL_SECONDS))
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd

    def release(self) -> None:
        """Let go; does nothing if the lock is not held."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            _unlock(fd)

    @property
    def is_orphaned(self) -> bool:
        """Whether the lock is held on a file that was removed, most likely with its folder: it keeps nobody out."""
        return self._fd >= 0 and os.fstat(self._fd).st_nlink == 0

    def __enter__(self) -> Lock:
        self.take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _try_lock(fd: int, *, shared: bool = False) -> bool:
    import fcntl  # not everywhere; where there is a local cloud it is

    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unlock(fd: int) -> None:
    """By closing alone it would stay locked as long as a child lives that another thread forked meanwhile."""
    import fcntl

    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def start_lock(path: str, deadline: deadlines.Deadline) -> Lock:
    """The lock that whoever starts or ends the daemon of folder ``path`` holds meanwhile."""
    return Lock(os.path.join(path, START_LOCK), deadline=deadline, what="waiting for another start of the local cloud")


def daemon_lock(path: str, deadline: deadlines.Deadline) -> Lock:
    """The lock that the daemon of folder ``path`` holds as long as it lives."""
    return Lock(os.path.join(path, DAEMON_LOCK), deadline=deadline, what="waiting for the previous local daemon to end")


def is_alive(path: str) -> bool:
    """Whether a daemon of folder ``path`` is running.

    Raises:
        errors.LocalCloudError: the folder is somebody else's, or none.
    """
    try:
        fd = os.open(os.path.join(path, DAEMON_LOCK), os.O_RDONLY | systems.CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _no_folder("look into", path, error) from error
    try:
        return not _try_lock(fd, shared=True)
    finally:
        _unlock(fd)


# -- records -----------------------------------------------------------------------------------------------------------


def read(path: str) -> Daemon | None:
    """The daemon that ``daemon.json`` in folder ``path`` names, or None. It may be gone: see ``is_alive``."""
    return _from_wire(_read_json(os.path.join(path, DAEMON_FILE)))


def _from_wire(fields: Mapping[str, object]) -> Daemon | None:
    url, version, pid = fields.get("url"), fields.get("version"), fields.get("pid")
    if not isinstance(url, str) or not isinstance(version, str) or not isinstance(pid, int):
        return None
    started_with = fields.get("started_with")  # absent in the files of daemons before this member was added
    known = started_with if isinstance(started_with, dict) else {}
    return Daemon(url=url, version=version, pid=pid, started_with={str(name): str(known[name]) for name in known})


def _to_wire(daemon: Daemon) -> dict[str, object]:
    return {member: getattr(daemon, member) for member in Daemon.__slots__}


def has_vms(path: str) -> bool:
    """Whether there is anything of MicroVMs in folder ``path``: without a daemon, those of one that was killed."""
    try:
        return bool(os.listdir(os.path.join(path, VMS_FOLDER)))
    except (FileNotFoundError, NotADirectoryError):
        return False


def has_note(path: str, microvm_id: str) -> bool:
    """Whether the local cloud of folder ``path`` knows a MicroVM of that id, running or ended. Asks no daemon."""
    name = f"{microvm_id}.json"
    return os.path.basename(name) == name and os.path.isfile(os.path.join(path, NOTES_FOLDER, name))


def write_daemon(path: str, daemon: Daemon) -> None:
    """Publish the daemon's address (0600)."""
    write_file(os.path.join(path, DAEMON_FILE), json.dumps(_to_wire(daemon)).encode())


def remove_daemon(path: str, *, pid: int | None = None) -> None:
    """Take the address back: that of the daemon with this ``pid``, or whatever is there."""
    if pid is not None:
        # Another daemon may have come since: one whose folder was removed, and made anew, lives on for a while.
        published = read(path)
        if published is None or published.pid != pid:
            return
    _remove(os.path.join(path, DAEMON_FILE))


def kept_port(path: str) -> int:
    """The control port that the daemon of folder ``path`` had the last time, or 0."""
    text = _read_bytes(os.path.join(path, PORT_FILE)).strip()
    port = int(text) if text.isdigit() and len(text) <= 5 else 0
    return port if port <= 65535 else 0


def keep_port(path: str, port: int) -> None:
    """Remember the control port, so that what ``local env`` printed stays true."""
    write_file(os.path.join(path, PORT_FILE), f"{port}\n".encode())


def keys(path: str) -> Keys:
    """The key pair of folder ``path``: made at the first call (0600), then always the same.

    Raises:
        errors.StateFileError: ``keys.json`` is damaged.
    """
    target = os.path.join(path, KEYS_FILE)
    found = _load_keys(target)
    if found is None:
        fields = {"access_key": "VMNEST" + _random_text(10).upper()[:14], "secret_key": _random_text(30)}
        # link() refuses to replace: of two that make keys at the same time, both use those of the first.
        write_file(target, json.dumps(fields).encode(), replace=False)
        found = _load_keys(target)
    if found is None:
        raise errors.StateFileError(f"{target} vanished while it was read")
    return found


def _load_keys(target: str) -> Keys | None:
    if not os.path.exists(target):
        return None
    fields = _read_json(target)
    access_key, secret_key = fields.get("access_key"), fields.get("secret_key")
    if not isinstance(access_key, str) or not isinstance(secret_key, str) or not (access_key and secret_key):
        raise errors.StateFileError(
            f"{target} is damaged",
            hint="Run vmnest local down and remove the file: new keys are made.",
        )
    return Keys(access_key=access_key, secret_key=secret_key)


def _random_text(count: int) -> str:
    # Without "/", "+" and "=", so that neither a shell line nor a URL has to quote it.
    return base64.b64encode(os.urandom(count), altchars=b"xy").decode().rstrip("=")


def _read_json(target: str) -> dict[str, object]:
    """The object in the file, or an empty one: what is not there and what is damaged are equally unknown."""
    try:
        fields = json.loads(_read_bytes(target) or b"{}")
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _read_bytes(target: str) -> bytes:
    try:
        with open(target, "rb") as file:
            return file.read(MAX_FILE_BYTES)
    except FileNotFoundError:
        return b""


def write_file(target: str, data: bytes, *, replace: bool = True) -> None:
    """Write a file (0600) that is either there in full or not at all.

    Raises:
        errors.LocalCloudError: it cannot be written; one that was there is untouched.
    """
    try:
        _write_file(target, data, replace=replace)
    except OSError as error:
        raise unusable(target, error) from error


def unusable(target: str, error: OSError) -> errors.LocalCloudError:
    """The error for a file of the local cloud's folder that cannot be written."""
    return errors.LocalCloudError(
        f"cannot write {target}: {error.strerror or error}",
        hint="The local cloud needs a folder that it can write to: make room, or set AGENT_SANDBOX_LOCAL_DIR.",
    )


def _write_file(target: str, data: bytes, *, replace: bool) -> None:
    temporary = f"{target}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | systems.CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        if replace:
            os.rename(temporary, target)
            return
        with contextlib.suppress(FileExistsError):
            os.link(temporary, target)
    finally:
        _remove(temporary)


def _remove(target: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(target)


# -- the ready line ----------------------------------------------------------------------------------------------------


def build_ready(daemon: Daemon) -> bytes:
    """The line by which a daemon that is serving answers its starter."""
    return json.dumps({"ready": True, **_to_wire(daemon)}).encode() + b"\n"


def build_not_ready(error: errors.VmnestError) -> bytes:
    """The line by which a daemon that could not start answers its starter."""
    return json.dumps({"error": error.to_wire()}).encode() + b"\n"


def parse_ready(line: bytes) -> Daemon:
    """The daemon that the ready line names.

    Raises:
        errors.VmnestError: the daemon's own error, in the class of its code.
        errors.LocalDaemonError: the line is missing or makes no sense.
    """
    try:
        fields = json.loads(line)
    except ValueError:
        fields = None
    if isinstance(fields, dict):
        daemon = _from_wire(fields)
        if fields.get("ready") is True and daemon is not None:
            return daemon
        if isinstance(fields.get("error"), dict):
            raise error_from_wire(fields["error"])
    raise errors.LocalDaemonError(
        "the local daemon ended before it was ready", hint=f"Its log, {LOG_FILE} in the local folder, may say why."
    )


def error_from_wire(wire: Mapping[str, object]) -> errors.VmnestError:
    """An error of the daemon's program, in the class of its code."""
    hint, details = wire.get("hint"), wire.get("details")
    local = {kind.code: kind for kind in errors.iter_classes(errors.LocalCloudError)}
    local[errors.StateFileError.code] = errors.StateFileError
    local[errors.SettingError.code] = errors.SettingError
    local[errors.DependencyMissingError.code] = errors.DependencyMissingError
    return local.get(str(wire.get("code")), errors.LocalDaemonError)(
        str(wire.get("message")),
        hint=hint if isinstance(hint, str) else None,
        details=details if isinstance(details, dict) else None,
    )


# -- what others need to call it ---------------------------------------------------------------------------------------


def environment(daemon: Daemon, pair: Keys, *, environ: Mapping[str, str]) -> list[tuple[str, str | None]]:
    """The variables by which boto3, the AWS CLI and the like work against the daemon; None is to be unset.

    Args:
        daemon: The running daemon.
        pair: The folder's keys.
        environ: The environment that the variables are for; exceptions from the HTTP proxy in it are kept.
    """
    lines: list[tuple[str, str | None]] = [(f"AWS_ENDPOINT_URL_{name}", daemon.url) for name in SERVED]
    lines += [
        ("AWS_ACCESS_KEY_ID", pair.access_key),
        ("AWS_SECRET_ACCESS_KEY", pair.secret_key),
        ("AWS_REGION", REGION),
        ("AWS_DEFAULT_REGION", REGION),
    ]
    # Botocore sends even loopback through HTTP_PROXY unless told otherwise; where both names are set, no_proxy wins.
    names = ["NO_PROXY", "no_proxy"] if "no_proxy" in environ else ["NO_PROXY"]
    value = _direct_hosts(environ.get("no_proxy") or environ.get("NO_PROXY") or "")
    lines += [(name, value) for name in names]
    return [*lines, ("AWS_SESSION_TOKEN", None), ("AWS_PROFILE", None)]


def _direct_hosts(present: str) -> str:
    hosts = [host.strip() for host in present.split(",") if host.strip()]
    return ",".join(hosts + [host for host in (LOOPBACK, "localhost") if host not in hosts])
