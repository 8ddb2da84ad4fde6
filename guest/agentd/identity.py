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


class Identity:
    """The identity of this VM and the payload of its launch. Thread-safe.

    Args:
        path: The file that programs in the VM read; it holds the id alone.
    """

    def __init__(self, path: str) -> None:
        self._path = path
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
            self._persist(self.vm_id)
            return True

    def _persist(self, vm_id: str) -> None:
        temporary = f"{self._path}.{os.getpid()}.tmp"
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            try:
                with open(temporary, "w", encoding="ascii") as file:
                    file.write(vm_id)
                os.replace(temporary, self._path)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)
        except OSError as error:
            journal.report(f"the identity could not be written to {self._path}: {error.strerror}")


def reseed() -> None:
    """Part this process's pseudo-random numbers from those of its clones; the kernel's own differ already."""
    random.seed(os.urandom(32))


def _parse_launch(body: bytes) -> tuple[str | None, str | None]:
    """The MicroVM's id and the payload in the body of the run hook, as far as they are there."""
    try:
        document = json.loads(body.decode("utf-8")) if body else {}
    except (ValueError, RecursionError) as error:
        journal.report(f"the body of the run hook is not JSON: {error}")
        return None, None
    members = document if isinstance(document, dict) else {}
    microvm_id, payload = members.get("microvmId"), members.get("runHookPayload")
    return (
        microvm_id if isinstance(microvm_id, str) else None,
        payload if isinstance(payload, str) else None,
    )
