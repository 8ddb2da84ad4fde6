#!/usr/bin/env python3
"""Writes the parts of README.rst that mirror code: options, settings, exit statuses, errors.

    python tools/readme_tables.py [--check]

A part stands between ``.. generated: NAME [ARGUMENT...]`` and ``.. end of generated``; all else is left alone.
``--check`` writes nothing and fails if a part is not what the code says.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from vmnest import errors, settings  # noqa: E402 - found by the line above
from vmnest.cli import manual, verbs, words  # noqa: E402

README = ROOT / "README.rst"
PART = re.compile(r"^(\.\. generated: (.+)\n)(?:.*\n)*?(\.\. end of generated\n)", re.MULTILINE)


def render_table(heading: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A ``list-table``; its cells are reStructuredText."""
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in (heading, *rows):
        lines += [f"   {'* -' if count == 0 else '  -'} {cell}" for count, cell in enumerate(row)]
    return "\n".join(lines)


def render_settings() -> str:
    rows = ((f"``{row.env}``", f"``{row.shown_default}``", row.meaning) for row in settings.SETTINGS.values())
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


RENDERERS: dict[str, Callable[..., str]] = {
    "settings": render_settings,
    "statuses": render_statuses,
    "exec-statuses": render_exec_statuses,
    "errors": render_errors,
    "options": render_options,
    "globals": render_globals,
}


def fill(text: str) -> str:
    """The README with every generated part as the code has it now."""

    def render(match: re.Match[str]) -> str:
        name, *arguments = match[2].split()
        return f"{match[1]}\n{RENDERERS[name](*arguments)}\n\n{match[3]}"

    return PART.sub(render, text)


def main() -> int:
    before = README.read_text(encoding="utf-8")
    after = fill(before)
    if "--check" not in sys.argv[1:]:
        README.write_text(after, encoding="utf-8")
    elif before != after:
        print("README.rst: its tables are not what the code says; run tools/readme_tables.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
