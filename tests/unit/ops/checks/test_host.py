"""What vmnest needs of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checks import by_id, make_context
from tests.support.paths import ROOT
from vmnest import __version__
from vmnest.aws import model
from vmnest.ops.checks import Check, host

if sys.version_info >= (3, 11):
    import tomllib


def look(**environ: str) -> dict[str, Check]:
    """All that is said of this machine."""
    context = make_context(environ)
    return by_id(each for probe in host.PROBES for each in probe(context))


def test_where_everything_is_there_all_is_well() -> None:
    found = look()
    assert {each.verdict for each in found.values()} == {"ok"}
    assert found["host.python"].data["executable"] == sys.executable
    assert found["host.vmnest"].detail == f"{__version__}, in {ROOT}"
    assert found["host.settings"].detail == "no AGENT_SANDBOX_* variable is set"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs tomllib")
def test_what_is_looked_for_is_what_the_package_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["dependencies"] == [f"{name}>={oldest}" for name, _, oldest, _, _ in host.DEPENDENCIES]
    assert project["requires-python"] == f">={'.'.join(map(str, host.OLDEST_PYTHON))}"
    assert host.DEPENDENCIES[0][2] == model.BOTOCORE_NEEDED


def look_without_site_packages(*path: Path) -> dict[str, dict[str, object]]:
    """What is said of libraries where there is nothing but the standard library and ``path``."""
    code = (
        f"import sys; sys.path[:0] = {[str(ROOT), *map(str, path)]!r}; import json\n"
        "from vmnest.ops.checks import host\n"
        "print(json.dumps({each.id: each.to_wire() for each in host.dependencies(None)}))"
    )
    words = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found: dict[str, dict[str, object]] = json.loads(done.stdout)
    return found


def test_what_is_missing_is_named_with_the_command_that_installs_it() -> None:
    found = look_without_site_packages()
    assert {name: each["verdict"] for name, each in found.items()} == {
        "host.botocore": "failed",
        "host.urllib3": "failed",
        "host.pyyaml": "warning",
    }
    assert found["host.urllib3"]["detail"] == "not installed: nothing works without it"
    assert found["host.urllib3"]["remedy"] == f"{sys.executable} -m pip install 'urllib3>=1.26.18'"


@pytest.mark.parametrize(("module", "distribution"), [("urllib3.util", "urllib3"), ("yaml", "PyYAML")])
def test_an_import_that_failed_for_want_of_a_library_is_told_so(module: str, distribution: str) -> None:
    told = host.missing(ModuleNotFoundError(f"No module named {module!r}", name=module))
    assert told is not None
    assert (told.code, told.message) == ("dependency_missing", f"{distribution} is not installed, which this needs")
    assert told.hint is not None
    assert f"{sys.executable} -m pip install '{distribution}>=" in told.hint


@pytest.mark.parametrize(
    "error", [ModuleNotFoundError("No module named 'vmnest.x'", name="vmnest.x"), ImportError(name="yaml"), KeyError()]
)
def test_other_failures_are_no_matter_of_libraries(error: Exception) -> None:
    assert host.missing(error) is None


def write_library(folder: Path, name: str, version: str | None) -> None:
    """An installed library that nobody may import: it would fail."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("raise AssertionError('imported')\n")
    if version is not None:
        record = folder / f"{name}-{version}.dist-info"
        record.mkdir()
        (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.mark.parametrize(
    ("version", "verdict", "detail"),
    [
        ("1.26.17", "failed", "1.26.17 is installed, and 1.26.18 or newer is needed"),
        ("1.26.18", "ok", "1.26.18, in "),
        ("2.0rc1", "ok", "2.0rc1, in "),
        (None, "ok", "version unknown, in "),
    ],
)
def test_a_version_is_read_and_nothing_imported(tmp_path: Path, version: str | None, verdict: str, detail: str) -> None:
    write_library(tmp_path, "urllib3", version)
    found = look_without_site_packages(tmp_path)["host.urllib3"]
    assert (found["verdict"], str(found["detail"]).startswith(detail)) == (verdict, True)


def test_a_mere_folder_of_its_name_is_no_library(tmp_path: Path) -> None:
    (tmp_path / "yaml").mkdir()
    assert look_without_site_packages(tmp_path)["host.pyyaml"]["verdict"] == "warning"


def test_a_bad_setting_is_told_with_its_variable() -> None:
    found = look(AGENT_SANDBOX_TARGET="moon", AGENT_SANDBOX_WORKDIR="/w")["host.settings"]
    assert (found.verdict, found.detail) == ("failed", "AGENT_SANDBOX_TARGET must be one of aws, local: 'moon'")
    assert (found.remedy or "").startswith("Set AGENT_SANDBOX_TARGET to a valid value")
    assert found.data == {"variables": ["AGENT_SANDBOX_TARGET", "AGENT_SANDBOX_WORKDIR"]}


def test_a_setting_of_the_mcp_server_alone_stops_nothing_else() -> None:
    assert look(AGENT_SANDBOX_MCP_MAX_OUTPUT_BYTES="many")["host.settings"].verdict == "warning"


def test_settings_of_local_sandboxes_are_not_looked_at_here() -> None:
    assert look(AGENT_SANDBOX_LOCAL_DISK="much")["host.settings"].verdict == "ok"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("AGENT_SANDBOX_IMAGE", "Did you mean AGENT_SANDBOX_IMAGE_ARN?"),
        ("AGENT_SANDBOX_LOCAL_ISOLATON", "Did you mean AGENT_SANDBOX_LOCAL_ISOLATION?"),
        ("AGENT_SANDBOX_ZZZZZZZZZZZZZZZZZZZZZZ", "unset AGENT_SANDBOX_ZZZZZZZZZZZZZZZZZZZZZZ"),
    ],
)
def test_a_variable_that_nobody_reads_is_pointed_out(name: str, remedy: str) -> None:
    found = look(**{name: "x"})["host.settings"]
    assert (found.verdict, found.remedy) == ("warning", remedy)


def test_an_empty_variable_counts_as_unset() -> None:
    assert look(AGENT_SANDBOX_TARGET="", AGENT_SANDBOX_OTHER="")["host.settings"].verdict == "ok"
