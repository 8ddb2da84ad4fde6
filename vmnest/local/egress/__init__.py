"""The way out of local sandboxes: a proxy for HTTP, which lets through what a sandbox's rules allow and nothing else.

A ``Gate`` serves one sandbox. Its listening socket is inside the sandbox, where that is all there is of a network; the
connections are accepted and carried here, in the daemon. ``conversation`` is one of them, ``exchange`` a request and
its answer in the clear, ``hello`` what a TLS client says first; ``outlet`` makes the connections to the outside, and
``addresses`` knows which addresses are public. The rules themselves are ``wire.egress``.
"""

from .gate import Gate
from .outlet import Outlet

__all__ = ["Gate", "Outlet"]
