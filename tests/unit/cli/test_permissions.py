"""Permission bits as text."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vmnest.cli import permissions

WHO = st.text("ugoa", max_size=3)
WHAT = st.one_of(st.sampled_from("ugo"), st.text("rwxXst", max_size=4))
ACTIONS = st.lists(st.builds("".join, st.tuples(st.sampled_from("-+="), WHAT)), min_size=1, max_size=2).map("".join)
CLAUSES = st.lists(st.builds("".join, st.tuples(WHO, ACTIONS)), min_size=1, max_size=3).map(",".join)


@pytest.mark.parametrize(
    ("text", "mode"), [("0", 0), ("644", 0o644), ("0755", 0o755), ("7777", 0o7777), ("00644", 0o644)]
)
def test_bits_are_octal(text: str, mode: int) -> None:
    assert permissions.parse_mode(text) == mode
    assert permissions.parse_change(text).mode == mode
    assert permissions.parse_change(text).apply(0o123, is_directory=True) == mode


@pytest.mark.parametrize("text", ["", "8", "0o644", "-1", "+1", "1_0", " 7", "10000", "77777", "644\n", "٣"])
def test_what_is_no_bits_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="such as 644"):
        permissions.parse_mode(text)


@pytest.mark.parametrize("text", ["", "x", "u", "u+y", "u+x,", ",u+x", "z+x", "u+x go-w", "8", "9+x", "u+x\n", "+ug"])
def test_what_is_no_change_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="such as 644"):
        permissions.parse_change(text)


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("+x", 0o644, 0o755),
        ("+w", 0o444, 0o644),
        ("a+w", 0o444, 0o666),
        ("u=rwX,go-rwx", 0o644, 0o600),
        ("g=u,o=", 0o640, 0o660),
        ("u+s", 0o755, 0o4755),
        ("+t", 0o777, 0o1777),
    ],
)
def test_a_change_depends_on_what_was(text: str, before: int, after: int) -> None:
    change = permissions.parse_change(text)
    assert change.mode is None
    assert change.apply(before, is_directory=False) == after


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=CLAUSES, before=st.integers(0, 0o7777), is_directory=st.booleans())
def test_it_is_what_chmod_makes_of_it(tmp_path: Path, text: str, before: int, is_directory: bool) -> None:
    path = tmp_path / ("folder" if is_directory else "file")
    path.mkdir(exist_ok=True) if is_directory else path.touch()
    path.chmod(before)
    try:
        line = ["sh", "-c", 'umask 022 && exec chmod -- "$@"', "sh", text, str(path)]
        subprocess.run(line, check=False, capture_output=True)
        after = stat.S_IMODE(path.stat().st_mode)
    finally:
        path.chmod(0o700)
    assert permissions.parse_change(text).apply(before, is_directory=is_directory) == after


@pytest.mark.parametrize(
    ("mode", "kind", "text"),
    [
        (0o644, "file", "-rw-r--r--"),
        (0o1777, "directory", "drwxrwxrwt"),
        (0o777, "link", "lrwxrwxrwx"),
        (0o4755, "file", "-rwsr-xr-x"),
        (0o600, "fifo", "prw-------"),
        (0, "something", "?---------"),
        (0o100644, "file", "-rw-r--r--"),
    ],
)
def test_a_mode_is_shown_as_ls_does(mode: int, kind: str, text: str) -> None:
    assert permissions.render(mode, kind=kind) == text
