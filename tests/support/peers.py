"""Servers and sockets that answer from a script."""
