"""What travels: names, HTTP/1.1 heads and framing, the byte pump. No policy; I/O in ``pipes``, ``streams`` and ``relay``."""
