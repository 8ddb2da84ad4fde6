"""What travels: names, HTTP/1.1 heads and framing, the byte pump. I/O in ``pipes``, ``streams``, ``relay``."""
