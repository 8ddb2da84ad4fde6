"""``http.server`` without OpenSSL.

``http.client``, which ``http.server`` needs, loads ``ssl`` for a class that the agent never uses: a fifth of the
agent's memory and of its start. It does without where ``ssl`` cannot be imported, and None in ``sys.modules`` is the
import system's own way to say so. Whoever imports ``ssl`` later gets it.
"""

from __future__ import annotations

import sys

_SSL = "ssl"
_was_unknown = _SSL not in sys.modules
if _was_unknown:
    sys.modules[_SSL] = None  # type: ignore[assignment]
try:
    from http import client, server
finally:
    if _was_unknown:
        del sys.modules[_SSL]

__all__ = ["client", "server"]
