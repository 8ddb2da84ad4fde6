"""A headless Chromium: Debian's, driven by Playwright, which ``tools/test --all`` installs beside the tests."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.paths import TOOLS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PATIENCE_SECONDS = 20.0
# Whatever a page or the browser itself asks for, nothing leaves this machine.
NOWHERE_ELSE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE *.localhost, EXCLUDE 127.0.0.1"


def _find_playwright() -> None:
    """Make it importable: its environment is beside ours, and of the same Python."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = TOOLS / "playwright" / "lib" / version / "site-packages"
    if not (packages / "playwright").is_dir():
        pytest.skip("Playwright is not installed: run tools/test --all")
    if str(packages) not in sys.path:
        sys.path.append(str(packages))


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """The browser; its processes end with the block."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs chromium (Debian and Ubuntu: apt-get install chromium)")
    _find_playwright()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=[NOWHERE_ELSE])
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser that the tests of a module share."""
    with open_browser() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page, without cookies or a cache of earlier ones."""
    with browser.new_context() as context:
        context.set_default_timeout(PATIENCE_SECONDS * 1000)
        yield context.new_page()
