"""A certificate of ``localhost`` that nobody trusts by themselves."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make(folder: Path) -> tuple[str, str]:
    """Write the certificate, which is its own authority, and its key."""
    certificate, key = str(folder / "certificate.pem"), str(folder / "key.pem")
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    making = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*making, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key
