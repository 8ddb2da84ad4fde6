"""The arrows between the rooms: tools/check_layers.py on the repository and on bad samples."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.paths import ROOT


def load_checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_layers", ROOT / "tools" / "check_layers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


checker = load_checker()


def write_tree(root: Path, files: dict[str, str]) -> None:
    defaults = {"vmnest/__init__.py": '__version__ = "1"\n', "guest/agentd/__init__.py": "", "guest/agentd/wire.py": ""}
    for name, text in {**defaults, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for parent in path.relative_to(root).parents:
            if parent.parts and not (root / parent / "__init__.py").exists():
                (root / parent / "__init__.py").touch()
        path.write_text(text)
    (root / "vmnest" / "_guest").symlink_to("../guest")


def test_every_import_of_the_repository_is_allowed() -> None:
    assert checker.check(ROOT) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("vmnest/settings.py", "from . import errors\n"),
        ("vmnest/control/images.py", "from ..aws import service\nfrom .. import errors, deadline\n"),
        ("vmnest/control/images.py", "from . import microvms\nfrom .microvms import MicroVM\n"),
        ("vmnest/agent/client.py", "from .._guest.agentd import wire\nfrom .._guest.agentd.wire import EXEC_PATH\n"),
        (
            "vmnest/local/api.py",
            "from ..aws import signing, shapes\nfrom ..aws.shapes import load\nfrom . import vms\n",
        ),
        ("vmnest/sandbox.py", "def f():\n    from .infra import outputs\n"),
        ("vmnest/cli/main.py", "from .. import __version__, ops\nfrom ..ops import sandboxes\n"),
        ("vmnest/__main__.py", "from .cli.main import console\n"),
        ("vmnest/transport.py", "import urllib3.exceptions\n"),
        ("vmnest/cli/main.py", "if TYPE_CHECKING:\n    from typing import Any\n"),
        ("vmnest/ops/local.py", "def f():\n    import subprocess\n"),
        ("guest/agentd/server.py", "import http.server\nfrom . import wire\n"),
    ],
)
def test_an_arrow_that_points_down_is_allowed(tmp_path: Path, name: str, text: str) -> None:
    known = [
        "errors",
        "settings",
        "deadline",
        "ops/sandboxes",
        "aws/service",
        "aws/signing",
        "aws/shapes",
        "control/microvms",
    ]
    write_tree(tmp_path, {**{f"vmnest/{module}.py": "" for module in known}, name: text})
    assert checker.check(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("vmnest/errors.py", "from . import settings\n", "errors may not import settings"),
        ("vmnest/aws/service.py", "from ..control import microvms\n", "aws may not import control.microvms"),
        ("vmnest/aws/service.py", "from .. import control\n", "aws may not import control"),
        (
            "vmnest/aws/service.py",
            "def f():\n    from ..control.microvms import MicroVM\n",
            "aws may not import control.microvms",
        ),
        (
            "vmnest/aws/service.py",
            "if TYPE_CHECKING:\n    from ..control import microvms\n",
            "may not import control.microvms",
        ),
        (
            "vmnest/aws/service.py",
            "import_module('..control.microvms', __package__)\n",
            "may not import control.microvms",
        ),
        ("vmnest/registry.py", "from . import target\n", "registry may not import target"),
        ("vmnest/cli/main.py", "from ..mcp import server\n", "cli may not import mcp.server"),
        ("vmnest/mcp/server.py", "from ..cli import main\n", "mcp may not import cli.main"),
        ("vmnest/target.py", "from .local import daemon\n", "target may not import local.daemon"),
        ("vmnest/local/api.py", "from ..aws import service\n", "local may not import aws.service"),
        ("vmnest/local/api.py", "from ..control import microvms\n", "local may not import control.microvms"),
        ("vmnest/local/api.py", "from .._guest.agentd import process\n", "local may not import _guest.agentd.process"),
        ("vmnest/settings.py", "from . import Sandbox\n", "settings may not import vmnest"),
        ("vmnest/settings.py", "from vmnest import errors\n", "vmnest: imports inside vmnest are relative"),
        ("vmnest/settings.py", "from ... import errors\n", ".: leaves the package"),
        ("vmnest/parlour.py", "from . import errors\n", "room parlour is not in the table"),
        ("vmnest/aws/service.py", "import urllib3\n", "urllib3 may be imported in transport only"),
        ("vmnest/infra/plan.py", "import yaml\n", "yaml may be imported in infra.config only"),
        ("vmnest/control/images.py", "from botocore import session\n", "botocore may be imported in aws only"),
        ("vmnest/agent/client.py", "import httpx\n", "httpx: not a dependency"),
        ("vmnest/cli/main.py", "import dataclasses\n", "dataclasses: too slow for the top level"),
        ("vmnest/ops/local.py", "from http.client import HTTPConnection\n", "http.client: too slow for the top level"),
        ("guest/agentd/server.py", "import fastapi\n", "fastapi: the guest has the standard library only"),
        ("guest/agentd/server.py", "import tomllib\n", "tomllib: the guest has the standard library only"),
        ("guest/agentd/server.py", "from .. import agentd\n", ".: leaves the guest"),
        ("guest/agentd/server.py", "import vmnest\n", "vmnest: the guest has the standard library only"),
    ],
)
def test_any_other_import_is_named_with_its_line(tmp_path: Path, name: str, text: str, reason: str) -> None:
    known = [
        "errors",
        "settings",
        "control/microvms",
        "mcp/server",
        "cli/main",
        "local/daemon",
        "aws/service",
        "target",
    ]
    files = {f"vmnest/{module}.py": "" for module in known} | {"guest/agentd/process.py": ""}
    write_tree(tmp_path, {**files, name: text})
    (violation,) = checker.check(tmp_path)
    place, line, message = violation.split(":", 2)
    assert place == name
    assert int(line) == text.count("\n")
    assert reason in message
