"""What travels: names, HTTP/1.1 heads and framing, the byte pump. No policy, and no I/O but in ``relay``."""
