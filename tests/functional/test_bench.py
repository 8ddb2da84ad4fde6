"""The benchmark: its arithmetic, what it tells of a machine, and that it runs."""

from __future__ import annotations

import json
import math
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.paths import ROOT, UPSTREAM_PYTHON
from tools.bench import figures, fits, machine

SIZES = (1, 10, 100, 1000)
ENVIRONMENT = Path(sys.prefix)
NEEDS = "needs the upstream package: tools/test installs it"


@given(st.floats(0.1, 1e4), st.floats(-0.05, 50))
def test_a_line_is_found_again(fixed: float, slope: float) -> None:
    points = {size: fixed + slope * size for size in (1, 10, 50, 200)}
    if min(points.values()) <= 0.01 * fixed:
        return  # a cost below nothing is no cost
    line = fits.fit_line(points)
    assert line.fixed == pytest.approx(fixed, rel=1e-6, abs=1e-6)
    assert line.slope == pytest.approx(slope, rel=1e-6, abs=1e-6)


def test_a_line_says_how_badly_it_fits() -> None:
    assert fits.fit_line({1: 10, 2: 20, 3: 30}).fit == pytest.approx(1)
    assert fits.fit_line({1: 10, 2: 30, 3: 10}).fit < 0.2
    assert fits.fit_line({1: 10, 2: 10, 3: 10}) == fits.Line(pytest.approx(10), pytest.approx(0), 1.0)


def test_small_sizes_count_as_much_as_large_ones() -> None:
    # A tenth too much at the largest size would bury what the smallest say, if absolute errors counted.
    points = {size: 5.0 + size for size in SIZES}
    line = fits.fit_line({**points, 1000: points[1000] * 1.1})
    assert line.fixed == pytest.approx(5, rel=0.05)


@pytest.mark.parametrize("power", [0, 0.5, 1, 2])
def test_growth_tells_the_power(power: float) -> None:
    growth = fits.Growth("x", "ours", "ms", "MB", {size: [3.0 * size**power] for size in SIZES})
    assert growth.exponent == pytest.approx(power)
    assert math.isclose(growth.points[10], 3.0 * 10**power)


def test_a_ratio_is_that_of_the_rounds_since_a_machine_drifts() -> None:
    figure = figures.Figure("x", "ms", [1, 2, 30], [10, 20, 300])
    assert figure.ratio == pytest.approx(0.1)
    assert figures.Figure("x", "ms", [1]).ratio is None


def test_what_is_told_of_a_machine_does_not_tell_which_one() -> None:
    told = machine.describe(ours=ENVIRONMENT, theirs=ENVIRONMENT)
    assert platform.node() not in told.values()
    assert set(told) == {
        *("date", "architecture", "processor", "cores", "memory_gib", "kernel", "load"),
        *("python", "botocore", "ours", "theirs"),
    }
    assert str(told["kernel"]).count(".") == 1
    assert machine.render(told).startswith(f"{told['date']}: vmnest ")


def run_bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    sides = ["--ours", str(ENVIRONMENT), "--theirs", str(UPSTREAM_PYTHON.parents[1])]
    command = [sys.executable, str(ROOT / "tools" / "bench"), *sides, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.skipif(not UPSTREAM_PYTHON.exists(), reason=NEEDS)
def test_it_measures_both_sides_and_writes_json(tmp_path: Path) -> None:
    done = run_bench("--only", "mcp,footprint", "--rounds", "1", "--json", str(tmp_path / "figures.json"))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "figures.json").read_text())
    rows = {row["name"]: row for row in found["figures"]}
    assert rows["install with MCP: packages"]["theirs"] > rows["install: packages"]["theirs"]
    assert rows["mcp: spawn to initialize"]["ratio"] < 0.5
    assert all(name in done.stdout for name in rows)


@pytest.mark.skipif(not UPSTREAM_PYTHON.exists(), reason=NEEDS)
@pytest.mark.parametrize(("options", "known"), [([], "footprint"), (["--scale"], "packing")])
def test_a_section_that_is_none_is_named_with_those_that_are(options: list[str], known: str) -> None:
    done = run_bench(*options, "--only", "nonsense")
    assert done.returncode == 2
    assert "nonsense" in done.stderr
    assert known in done.stderr
