"""The MCP server on standard input and output, for both eras of the protocol.

``stdio`` makes lines of bytes, ``jsonrpc`` messages of lines, ``eras`` decides by which rules a message is served, and
``server`` serves it. This room may import everything below it; ``cli`` may not import it, nor it ``cli``, but for the
one verb that starts it as a program of its own.
"""
