"""The local cloud's own trial (``vmnest.local --trial``): one sandbox, made and removed by a process that ends."""

from __future__ import annotations

import json

from ... import daemon, errors, rendezvous

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping

    from ...deadline import Deadline

__all__ = ["run"]

# To come to its end by itself, and to remove what it has made: it bounds its own waits by less than a diagnosis takes.
_LAST_SECONDS = 5.0
_SHOWN = 500


def run(folder: str, *, environ: Mapping[str, str], deadline: Deadline) -> dict[str, object]:
    """What the sandbox was made of: the members of ``local.trial.run``.

    Raises:
        errors.LocalCloudError, errors.SettingError: there can be none; the error is the trial's own.
        errors.WaitTimeoutError: it was not done at the deadline.
    """
    import subprocess

    with _spawn(folder, environ) as process:
        try:
            told, noise = process.communicate(timeout=deadline.remaining())
        except subprocess.TimeoutExpired:
            _await_end(process)
            raise errors.WaitTimeoutError(f"no sandbox was made within {deadline.seconds:g} s") from None
    return _understand(told, noise)


def _spawn(folder: str, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    import subprocess

    try:
        return subprocess.Popen(
            daemon.build_command(["--folder", folder, "--trial"], detached=False),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=daemon.build_environment(environ),
        )
    except OSError as error:
        raise errors.LocalDaemonError(
            f"cannot start the local cloud's program: {error}",
            hint="Run vmnest with a Python that this user may read and execute.",
        ) from error


def _await_end(process: subprocess.Popen[bytes]) -> None:
    import subprocess

    try:
        process.communicate(timeout=_LAST_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def _understand(told: bytes, noise: bytes) -> dict[str, object]:
    try:
        found = json.loads(told)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        said = errors.quote(noise[-_SHOWN:].decode("utf-8", "replace"), limit=_SHOWN)
        raise errors.LocalDaemonError(f"the local cloud's program failed: {said or 'it said nothing'}")
    if isinstance(found.get("error"), dict):
        raise rendezvous.error_from_wire(found["error"])
    return found
