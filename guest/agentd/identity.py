"""Who this VM is: all VMs start from one snapshot, so identity and randomness are made anew when one is run.

The first ``claim`` decides for the life of the VM. Code inside can reach the hook port too; its later claims change
nothing. A resume reseeds but keeps the identity, for the same reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading

from . import journal

PAYLOAD_NAME = "payload"


class Identity:
    """The identity of this VM and the payload of its launch. Thread-safe.

    Args:
        path: The file that programs in the VM read; it holds the id alone. The launch's payload, if there is one, is
            kept in ``payload`` beside it, for the agent's user alone: it may be a secret.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._payload_path = os.path.join(os.path.dirname(path), PAYLOAD_NAME)
        self._lock = threading.Lock()
        self.vm_id: str | None = None
        self.microvm_id: str | None = None
        self.payload: str | None = None

    def claim(self, body: bytes) -> bool:
        """Take the body of the run hook; False, and no change, when one was taken before.

        A body that is not the hook's JSON is no reason to refuse: the platform ends a VM whose run hook fails.
        """
        with self._lock:
            if self.vm_id is not None:
                return False
            self.vm_id = os.urandom(16).hex()
            self.microvm_id, self.payload = _parse_launch(body)
            reseed()
            _persist(self._path, self.vm_id, what="the identity", mode=0o644)
            if self.payload:
                _persist(self._payload_path, self.payload, what="the payload", mode=0o600)
            return True


def _persist(path: str, text: str, *, what: str, mode: int) -> None:
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
            with open(descriptor, "wb") as file:
                file.write(text.encode("utf-8", "surrogatepass"))
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
    except OSError as error:
        journal.report(f"{what} could not be written to {path}: {error.strerror}")


def reseed() -> None:
    """Part this process's pseudo-random numbers from those of its clones; the kernel's own differ already."""
    random.seed(os.urandom(32))


def _parse_launch(body: bytes) -> tuple[str | None, str | None]:
    """The MicroVM's id and the payload in the body of the run hook, as far as they are there."""
    try:
        document = json.loads(body.decode("utf-8")) if body else {}
    except (ValueError, RecursionError) as error:
        journal.report(f"the body of the run hook is not JSON ({type(error).__name__})")
        return None, None
    members = document if isinstance(document, dict) else {}
    microvm_id, payload = members.get("microvmId"), members.get("runHookPayload")
    return (
        microvm_id if isinstance(microvm_id, str) else None,
        payload if isinstance(payload, str) else None,
    )
