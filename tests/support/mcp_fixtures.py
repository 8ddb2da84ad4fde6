"""An MCP server whose tools and resources have the names that the conformance suite asks for, on the core of ours.

``python -m tests.support.mcp_fixtures`` serves them on standard input and output. There is a fixture for what the core
can do; what it does not offer (prompts, completion, subscriptions, logging, questions to the user) has none.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vmnest.mcp import calls, jsonrpc, program, server, stdio
from vmnest.mcp.calls import Call

MISSING_CAPABILITY = -32021
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
TEMPLATE = re.compile(r"test://template/([^/]+)/data")


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _png() -> str:
    """One red pixel."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0\xff\0\0")
    return _encode(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))


def _wav() -> str:
    """Two samples of silence."""
    samples = b"\0" * 4
    form = struct.pack("<HHIIHH", 1, 1, 8000, 16000, 2, 16)
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(samples)) + samples
    return _encode(b"RIFF" + struct.pack("<I", len(body)) + body)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


IMAGE = {"type": "image", "data": _png(), "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": _wav(), "mimeType": "audio/wav"}


def _embedded(uri: str, kind: str, text: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}}


def _answer(*content: dict[str, Any], **more: object) -> Callable[[Call], dict[str, Any]]:
    """A tool that always answers so."""
    return lambda call: {"content": list(content), **more}


def _go_on(call: Call) -> dict[str, Any]:
    """Tell of progress three times, as often as it may be told, if it may."""
    for reached in (0, 50, 100) if call.wants_progress else ():
        call.progress(reached, total=100)
        time.sleep(calls.PROGRESS_SECONDS * 1.1)
    return {"content": [_text("It went on.")]}


def _need_sampling(call: Call) -> dict[str, Any]:
    """Refuse a client that cannot sample."""
    meta = call.request.params.get("_meta")
    declared = meta.get(CAPABILITIES) if isinstance(meta, dict) else None
    if not isinstance(declared, dict) or "sampling" not in declared:
        raise jsonrpc.ProtocolError(
            MISSING_CAPABILITY, "This tool needs sampling", data={"requiredCapabilities": {"sampling": {}}}
        )
    return {"content": [_text("You can sample.")]}


TOOLS: dict[str, Callable[[Call], dict[str, Any]]] = {
    "test_simple_text": _answer(_text("This is a simple text.")),
    "test_image_content": _answer(IMAGE),
    "test_audio_content": _answer(AUDIO),
    "test_embedded_resource": _answer(_embedded("test://embedded", "text/plain", "It is inside.")),
    "test_multiple_content_types": _answer(
        _text("There are several."), IMAGE, _embedded("test://mixed", "application/json", '{"test":"data"}')
    ),
    "test_error_handling": _answer(_text("This tool always fails."), isError=True),
    "test_tool_with_progress": _go_on,
    "test_missing_capability": _need_sampling,
    "test_streaming_elicitation": _go_on,  # of a client that may be asked, nothing is asked
    "test_logging_tool": _answer(_text("It logs nothing.")),
    "json_schema_2020_12_tool": _answer(_text("Its schema was the thing.")),
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
}
RESOURCES: dict[str, dict[str, str]] = {
    "test://static-text": {"mimeType": "text/plain", "text": "This text does not change."},
    "test://static-binary": {"mimeType": "image/png", "blob": _png()},
}


class Fixtures:
    """What is offered, as ``server.Provider`` has it."""

    def tools(self) -> Sequence[Mapping[str, object]]:
        plain = {"type": "object", "additionalProperties": False}
        return [
            {"name": name, "description": f"The fixture {name}.", "inputSchema": SCHEMAS.get(name, plain)}
            for name in TOOLS
        ]

    def call(self, name: str, arguments: Mapping[str, object], call: Call) -> dict[str, object] | None:
        return TOOLS[name](call) if name in TOOLS else None

    def resources(self) -> Sequence[Mapping[str, object]]:
        return [
            {"uri": uri, "name": uri, "description": f"The fixture {uri}.", "mimeType": content["mimeType"]}
            for uri, content in RESOURCES.items()
        ]

    def read(self, uri: str, call: Call) -> Sequence[Mapping[str, object]] | None:
        if uri in RESOURCES:
            return [{"uri": uri, **RESOURCES[uri]}]
        made = TEMPLATE.fullmatch(uri)
        if made is None:
            return None
        data = {"id": made[1], "templateTest": True, "data": f"Data for ID: {made[1]}"}
        return [{"uri": uri, "mimeType": "application/json", "text": json.dumps(data)}]


def main() -> None:
    """Serve until the client is gone."""
    source = stdio.take_standard_input()
    wire = stdio.Wire(stdio.take_standard_output())
    identity = {"name": "fixtures", "version": "1"}
    serving = server.Server(Fixtures(), identity=identity, instructions="For tests.", write=wire.write)
    program.serve(serving, source=source)


if __name__ == "__main__":
    main()
