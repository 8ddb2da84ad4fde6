"""Which paths of this machine are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from vmnest import errors
from vmnest.mcp.tools import hostpaths


def test_what_is_below_the_working_directory_is_read_where_it_really_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    (here / "guest").mkdir(parents=True)
    (here / "link").symlink_to("guest")
    (here / "out").symlink_to("..")
    monkeypatch.chdir(here)
    assert hostpaths.allow("link") == hostpaths.allow(str(here / "guest")) == str(here / "guest")
    assert hostpaths.allow("none") == str(here / "none")
    for path in ("..", "out", "out/here/../x", str(tmp_path), "/etc"):
        with pytest.raises(errors.HostPathRefusedError):
            hostpaths.allow(path)
    monkeypatch.setenv("AGENT_SANDBOX_MCP_HOST_PATHS", str(tmp_path))
    assert hostpaths.allow("out") == str(tmp_path)
