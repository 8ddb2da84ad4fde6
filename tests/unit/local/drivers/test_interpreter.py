"""Which Python runs inside."""

from __future__ import annotations

import os
import subprocess
import sys

from vmnest.local.drivers import interpreter


def test_the_systems_own_come_first() -> None:
    found = list(interpreter.list_candidates(visible=["/usr"], system=["/bin/sh", "/no/such/python"]))
    assert found[0] == interpreter.Interpreter("/bin/sh")
    assert found[1:] == [interpreter.own(visible=["/usr"])]


def test_our_own_is_the_base_of_a_virtual_environment() -> None:
    own = interpreter.own(visible=[])
    assert own.prefix == os.path.realpath(sys.base_prefix)
    assert own.path.startswith(f"{own.prefix}/bin/python3.")
    assert os.access(own.path, os.X_OK)


def test_our_own_shows_no_site_packages() -> None:
    masked = interpreter.own(visible=[]).masked
    assert all(path.startswith(os.path.realpath(sys.base_prefix)) for path in masked)
    assert any(path.endswith("site-packages") for path in masked)


def test_a_prefix_that_is_visible_anyway_is_not_bound() -> None:
    own = interpreter.own(visible=[os.path.dirname(os.path.realpath(sys.base_prefix))])
    assert (own.prefix, own.masked) == (None, ())


def test_the_check_passes_for_a_python_that_runs_us() -> None:
    assert subprocess.run([sys.executable, "-I", "-S", "-c", interpreter.CHECK], check=False).returncode == 0
