#!/usr/bin/env python3
"""Writes the parts of README.rst that mirror code: commands, options, settings, statuses, errors, tools of MCP.

    python tools/readme_tables.py [--check]

A part stands between ``.. generated: NAME [ARGUMENT...]`` and ``.. end of generated``; all else is left alone.
``--check`` writes nothing and fails if a part is not what the code says.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import inspect
import io
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from vmnest import errors, settings  # noqa: E402 - found by the line above
from vmnest._guest.agentd import wire  # noqa: E402
from vmnest.cli import hosts, manual, tree, verbs, words  # noqa: E402
from vmnest.control import image_specs  # noqa: E402
from vmnest.forward import forwarder  # noqa: E402
from vmnest.guest_image import checking, scanning  # noqa: E402
from vmnest.local import acceptor  # noqa: E402
from vmnest.mcp import envelope, resources  # noqa: E402
from vmnest.mcp.tools import attendance, forwarding, table  # noqa: E402
from vmnest.ops import builds, files, infra, inventory, logs  # noqa: E402
from vmnest.ops.checks import quotas  # noqa: E402
from vmnest.sandbox import handle  # noqa: E402
from vmnest.wire import egress, names  # noqa: E402

README = ROOT / "README.rst"
MEASURED = ROOT / "tools" / "bench" / "measured"
LEAST_SLOPE = 0.01  # less is noise
SHOWN_PATH = "/home/ada/.local/bin/vmnest"
PART = re.compile(r"^(\.\. generated: (.+)\n)(?:.*\n)*?(\.\. end of generated\n)", re.MULTILINE)


def render_table(heading: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A ``csv-table``, a line a row; its cells are reStructuredText."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    # A dash alone would be a list.
    writer.writerows([r"\-" if cell == "-" else cell for cell in row] for row in (heading, *rows))
    return ".. csv-table::\n   :header-rows: 1\n\n" + textwrap.indent(text.getvalue(), "   ").rstrip()


def render_settings(prefix: str = "") -> str:
    """The settings; only those whose variables begin with ``prefix``."""
    rows = (
        (f"``{row.env}``", f"``{row.shown_default}``", row.meaning)
        for row in settings.SETTINGS.values()
        if row.env.startswith(prefix)
    )
    return render_table(("Variable", "Default", "Meaning"), rows)


def render_statuses() -> str:
    rows = ((status, meaning[:1].upper() + meaning[1:]) for status, meaning in manual.EXIT_STATUSES)
    return render_table(("Status", "Meaning"), rows)


def render_exec_statuses() -> str:
    rows = ((status, meaning[:1].upper() + meaning[1:]) for status, meaning in manual.EXEC_STATUSES)
    return render_table(("Status", "Meaning"), rows)


def render_errors() -> str:
    home = f"{errors.__name__}."
    classes = [each for each in dict.fromkeys(errors.iter_classes()) if each.__module__.startswith(home)]
    rows = (
        (
            f"``{each.code}``",
            f"``{each.__name__}``",
            str(each.exit_status),
            "yes" if each.retryable else "no",
            _first_sentence(each),
        )
        for each in sorted(classes, key=lambda each: (each.code, each.__name__))
    )
    return render_table(("Code", "Class", "Status", "Retry", "Meaning"), rows)


def render_limits() -> str:
    """What vmnest takes and keeps at most, and whose limit each is."""
    longest = _duration(names.LONGEST_LIFE_SECONDS)
    sizes = ", ".join(map(str, image_specs.MEMORY_CLASSES_MIB))
    rows = (
        ("Life of a sandbox (``--max-duration``)", f"{longest}, suspended or not", "AWS"),
        ("Time without a request (``--idle``)", f"{_duration(names.SHORTEST_IDLE_SECONDS)} to {longest}", "AWS"),
        ("Memory of an image (``image build --memory``)", f"{sizes} MiB", "AWS"),
        ("Variables of an image", f"{checking.MAX_VARIABLES}, of {checking.MAX_VARIABLE_VALUE} characters each", "AWS"),
        ("Payload (``--run-payload``)", f"{names.LONGEST_PAYLOAD_BYTES} bytes", "AWS"),
        ("Directory that an image is built of", _size(scanning.MAX_CONTENT_BYTES), "the disk of AWS's builds"),
        ("Ports of a sandbox", f"1 to 65535, without {wire.HOOK_PORT}, the hooks'", "vmnest"),
        (
            "Output that is kept of a command, of each stream",
            f"{_size(wire.DEFAULT_RETAINED_BYTES)}; with ``--output-limit`` up to {_size(wire.MAX_OUTPUT_BYTES)}",
            "vmnest",
        ),
        ("File that is shown in a JSON object", _size(files.MOST_READ_BYTES), "vmnest"),
        (
            "Log in one answer; the rest by its cursor",
            f"{logs.MOST_EVENTS:,} events, or {_size(logs.MOST_BYTES)}",
            "vmnest",
        ),
        ("Connections through one ``forward``", f"{forwarder.MAX_CLIENTS:,} at a time; more wait", "vmnest"),
        ("Connections to a local sandbox", f"{acceptor.MAX_CONNECTIONS:,} at a time", "vmnest"),
        ("Hosts that a local sandbox is allowed", str(egress.MAX_RULES), "vmnest"),
        ("Asking for states (``ls``, ``prune``)", _duration(inventory.ASK_SECONDS), "vmnest"),
        ("Wait for a new sandbox (``--wait-timeout``)", f"{_duration(handle.CREATE_SECONDS)} by default", "vmnest"),
        ("``image build`` (``--timeout``)", f"{_duration(builds.BUILD_SECONDS)} by default", "vmnest"),
        (
            "``infra up``, ``infra destroy`` (``--timeout``)",
            f"{_duration(infra.UP_SECONDS)}, {_duration(infra.DESTROY_SECONDS)} by default",
            "vmnest",
        ),
        ("MCP: time until a tool answers, if only that it goes on", _duration(attendance.MOST_SECONDS), "vmnest"),
        ("MCP: text in an answer", f"{envelope.USUAL_CHARACTERS:,} characters, unless more is asked for", "vmnest"),
        (
            "MCP: forwardings, and ports of all of them",
            f"{forwarding.MOST_FORWARDS}, {forwarding.MOST_PORTS}",
            "vmnest",
        ),
    )
    return render_table(("Of what", "At most", "Whose limit"), rows)


def render_quotas() -> str:
    """AWS's published defaults, as ``doctor`` takes them where Service Quotas does not answer."""
    rows = (
        (
            quota.name.replace("_", " ").capitalize(),
            f"{quota.default:,.0f} {quota.unit}".rstrip(),
            f"{quota.special:,.0f} {quota.unit}".rstrip(),
            quota.code,
        )
        for quota in quotas.QUOTAS
    )
    return render_table(("Quota", "Default", f"In {', '.join(quotas.SPECIAL_REGIONS)}", "Code"), rows)


def _size(count: int) -> str:
    """Bytes in the largest unit of which they are a whole number."""
    units = ("bytes", "KiB", "MiB", "GiB")
    power = max(power for power in range(len(units)) if count % 1024**power == 0)
    return f"{count // 1024**power:,} {units[power]}"


def _duration(seconds: float) -> str:
    """Seconds in the largest unit of which they are a whole number."""
    count, unit = next(
        (seconds / size, unit) for size, unit in ((3600, "h"), (60, "min"), (1, "s")) if seconds % size == 0
    )
    return f"{count:.0f} {unit}"


def _first_sentence(each: type) -> str:
    paragraph = (inspect.getdoc(each) or "").partition("\n\n")[0].replace("\n", " ")
    return paragraph.partition(". ")[0].partition("; ")[0].rstrip(".")


def _options(parser: words.Parser) -> Iterator[tuple[str, str]]:
    """Each option of a verb's parser as the manual spells it, and its help."""
    for option in parser.rows:
        value = f" {option.metavar}" if option.metavar else ""
        yield ", ".join(f"``{flag}{value}``" for flag in option.flags), option.help


def render_options(*title: str) -> str:
    """The usage of a verb and its own options."""
    verb = verbs.find(title)
    assert verb is not None, title
    parser = importlib.import_module(f"vmnest.cli.{verb.module}").build_parser(verb)
    lines = ["::", "", f"    {parser.usage}"]
    for spelling, meaning in _options(parser):
        escaped = meaning.replace("*", "\\*")  # stars are no emphasis here
        lines += ["", spelling, f"    {escaped[:1].upper()}{escaped[1:]}."]
    return "\n".join(lines)


def render_globals() -> str:
    rows = ((f"``{spelling}``", meaning[:1].upper() + meaning[1:]) for spelling, meaning in manual.OPTIONS)
    return render_table(("Option", "Meaning"), rows)


def render_mcp_tools() -> str:
    """The tools with what each does, and its parameters."""
    rows = []
    for tool in table.load().values():
        told = tool.describe()
        (text, schema) = (str(told["description"]), told["inputSchema"])
        assert isinstance(schema, dict)
        needed = schema.get("required", ())
        names = ", ".join(f"``{name}``" if name in needed else f"``[{name}]``" for name in schema["properties"])
        first = text.partition("\n\n")[0].partition(". ")[0].rstrip(".")
        escaped = first.replace("*", "\\*").replace("`", "``")  # as in Markdown, which models write
        rows.append((f"``{tool.name}``", escaped, names or "-"))
    return render_table(("Tool", "Meaning", "Parameters"), rows)


def render_mcp_resources() -> str:
    rows = ((f"``{row.uri}``", row.description) for row in resources.RESOURCES)
    return render_table(("URI", "Meaning"), rows)


def render_mcp_config(*clients: str) -> str:
    """What ``mcp config`` prints for hosts that are all told the same, and where that goes."""
    told = [hosts.HOSTS[client] for client in clients]
    (snippet,) = {host.render(hosts.Start(SHOWN_PATH, ["mcp"], {})) for host in told}
    rows = [
        f"**{host.title[:1].upper()}{host.title[1:]}** (``vmnest mcp config {client}``): {host.place}"
        for client, host in zip(clients, told, strict=True)
    ]
    head = f"{rows[0]}::" if len(rows) == 1 else "\n".join(f"- {row}" for row in rows) + "\n\n::"
    return f"{head}\n\n{_indent(snippet)}"


def render_tree() -> str:
    """All commands at a glance, as ``vmnest --tree`` prints them."""
    return f"::\n\n{_indent(tree.render_tree())}"


def _indent(text: str) -> str:
    return textwrap.indent(text, "    ").rstrip()


def _load_measured(name: str) -> dict[str, Any]:
    """What ``tools/bench/run --json`` has written."""
    found: dict[str, Any] = json.loads((MEASURED / f"{name}.json").read_text(encoding="utf-8"))
    return found


def _show(value: float | None, unit: str) -> str:
    """A measured value as short as it is exact."""
    if value is None:
        return "-"
    digits = 0 if abs(value) >= 100 or value == int(value) else 1 if abs(value) >= 10 else 2
    text = f"{value:,.{digits}f}"
    return f"{text.lstrip('-') if float(text.replace(',', '')) == 0 else text} {unit}".rstrip()


def render_machine() -> str:
    """On what was measured."""
    told = _load_measured("figures")["machine"]
    lines = (
        f"Measured on {told['date']} with Python {told['python']} and botocore {told['botocore']}, on",
        f"{told['cores']} cores ({told['processor']}, {told['architecture']}), {told['memory_gib']} GiB of memory and "
        f"Linux {told['kernel']}.",
    )
    return "\n".join(lines)


def render_figures() -> str:
    """What ``tools/bench/run`` has measured."""
    rows = (
        (
            row["name"],
            _show(row["ours"], row["unit"]),
            _show(row["theirs"], row["unit"]),
            "-" if row["ratio"] is None else f"{row['ratio']:.3f}",
            "-" if row["goal"] is None else f"{row['goal']:g}",
        )
        for row in _load_measured("figures")["figures"]
    )
    return render_table(("Median", "vmnest", "0.1.2", "Ratio", "Goal"), rows)


def render_growth() -> str:
    """What ``tools/bench/run --scale`` has measured: of each side the price of nothing and that of one more."""
    found: dict[str, dict[str, Any]] = {}
    for row in _load_measured("growth")["growth"]:
        found.setdefault(row["name"], {})[row["side"]] = row
    rows = []
    for name, sides in found.items():
        (first, *_) = sides.values()
        cells = ("-" if side not in sides else _show_line(sides[side]) for side in ("ours", "theirs"))
        rows.append((name, first["per"], *cells))
    return render_table(("Cost", "Of each", "vmnest", "0.1.2"), rows)


def _show_line(row: dict[str, Any]) -> str:
    sizes = [int(size) for size in row["medians"]]
    slope = 0 if abs(row["slope"]) < LEAST_SLOPE else row["slope"]
    return f"{_show(row['fixed'], row['unit'])} + {slope:.3g} {row['unit']} (to {max(sizes):,})"


RENDERERS: dict[str, Callable[..., str]] = {
    "settings": render_settings,
    "statuses": render_statuses,
    "exec-statuses": render_exec_statuses,
    "errors": render_errors,
    "limits": render_limits,
    "quotas": render_quotas,
    "options": render_options,
    "globals": render_globals,
    "tree": render_tree,
    "mcp-tools": render_mcp_tools,
    "mcp-resources": render_mcp_resources,
    "mcp-config": render_mcp_config,
    "machine": render_machine,
    "figures": render_figures,
    "growth": render_growth,
}


def fill(text: str) -> str:
    """The README with every generated part as the code has it now."""

    def render(match: re.Match[str]) -> str:
        name, *arguments = match[2].split()
        return f"{match[1]}\n{RENDERERS[name](*arguments)}\n\n{match[3]}"

    return PART.sub(render, text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="readme_tables.py", description="Write README.rst's tables from the code.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing, and fail if a table is not what it should be"
    )
    options = parser.parse_args()
    before = README.read_text(encoding="utf-8")
    after = fill(before)
    if not options.check:
        README.write_text(after, encoding="utf-8")
    elif before != after:
        print("README.rst: its tables are not what the code says; run tools/readme_tables.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
