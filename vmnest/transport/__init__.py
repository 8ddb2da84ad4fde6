"""HTTP/1.1 to anywhere; the only room that imports urllib3. Imports errors, deadline, settings and wire.

``Transport.send`` makes one exchange and hands the answer out as a stream; whatever a library raises below it is turned
into this tree's own errors here, and nowhere above. ``client`` holds the pool and the exchange, ``connections`` makes
one connection, ``tls`` decides whom to trust, ``wire.proxies`` which way to go, ``answers`` reads.
"""

from __future__ import annotations

from .answers import Headers, Response
from .client import Transport, shared

__all__ = ["Headers", "Response", "Transport", "shared"]
