"""Which driver is chosen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vmnest import errors
from vmnest.local import drivers
from vmnest.local.drivers import selection


def test_the_namespace_driver_is_chosen_and_works(tmp_path: Path) -> None:
    driver = drivers.select(folder=str(tmp_path), minimum="namespace", visible=(), environ={})
    try:
        assert driver.name == "namespace"
    finally:
        driver.close()
    assert sorted(set(os.listdir(tmp_path)) - {"sandbox-uid"}) == ["rubbish", "runtime", "skeleton"]


@pytest.mark.parametrize("minimum", ["kernel", "vm"])
def test_a_stronger_isolation_than_there_is_is_refused(tmp_path: Path, minimum: str) -> None:
    with pytest.raises(errors.IsolationUnavailableError, match=minimum) as caught:
        drivers.select(folder=str(tmp_path), minimum=minimum, visible=(), environ={})
    assert "AGENT_SANDBOX_LOCAL_ISOLATION" in (caught.value.hint or "")
    assert os.listdir(tmp_path) == []


def test_what_a_killed_probe_left_is_swept_away(tmp_path: Path) -> None:
    (tmp_path / "probe-abc" / "vm" / "layer").mkdir(parents=True)
    (tmp_path / "precious").touch()
    selection._sweep(str(tmp_path))
    assert os.listdir(tmp_path) == ["precious"]
