"""Real servers in a local sandbox, reached through ``Sandbox.forward`` by a browser and by programs."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import shutil
import subprocess
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import websockets.exceptions
import websockets.sync.client

from tests.support.cloud import LocalCloud
from tests.support.sites import FASTAPI_PORT, VITE_PORT
from vmnest import Sandbox
from vmnest.sandbox.forwarding import Forwarding
from vmnest.wire import names

if TYPE_CHECKING:
    from playwright.sync_api import Page

MEBIBYTE = 1024 * 1024
BLOB_MEBIBYTES = 300
PATIENCE_SECONDS = 20.0
STREAM_SECONDS = 120.0
LATE_PORT = 8123

pytestmark = pytest.mark.usefixtures("site_sandbox")


@pytest.fixture(scope="module")
def vite_forwarding(vite: str, site_sandbox: Sandbox) -> Iterator[Forwarding]:
    with site_sandbox.forward(VITE_PORT, local_port=0) as forwarding:
        yield forwarding


@pytest.fixture(scope="module")
def fastapi_forwarding(fastapi: str, site_sandbox: Sandbox) -> Iterator[Forwarding]:
    with site_sandbox.forward(FASTAPI_PORT, local_port=0) as forwarding:
        yield forwarding


def run(*words: str) -> str:
    """What a program prints that must succeed."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=STREAM_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def curl(*words: str) -> str:
    return run("curl", "--silent", "--show-error", "--fail", "--max-time", f"{PATIENCE_SECONDS:g}", *words)


def expect_text(page: Page, selector: str, text: str) -> None:
    """Wait until an element of the page says that."""
    page.wait_for_function("([at, text]) => document.querySelector(at)?.textContent === text", arg=[selector, text])


def note_problems(page: Page) -> list[str]:
    """What the page will complain about from now on."""
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("requestfailed", lambda request: problems.append(f"{request.url}: {request.failure}"))
    return problems


def open_vite(page: Page, forwarding: Forwarding) -> None:
    """Open the site, and wait until the page is connected to its server for changes."""
    with page.expect_console_message(lambda message: "[vite] connected" in message.text):
        page.goto(forwarding.url)


# -- Vite --------------------------------------------------------------------------------------------------------------


def test_a_browser_loads_a_page_of_vite(page: Page, vite_forwarding: Forwarding) -> None:
    problems = note_problems(page)
    page.goto(vite_forwarding.url)
    expect_text(page, "#greeting", "hello from the sandbox")
    assert problems == []


def test_an_edit_in_the_sandbox_shows_in_the_open_page(
    page: Page, vite: str, vite_forwarding: Forwarding, site_sandbox: Sandbox
) -> None:
    open_vite(page, vite_forwarding)
    page.evaluate("window.isTheSamePage = true")
    site_sandbox.files.write(f"{vite}/greeting.js", 'export const greeting = "edited";\n')
    expect_text(page, "#greeting", "edited")
    assert page.evaluate("window.isTheSamePage") is True


def test_an_edit_of_the_page_itself_reloads_it(
    page: Page, vite: str, vite_forwarding: Forwarding, site_sandbox: Sandbox
) -> None:
    open_vite(page, vite_forwarding)
    text = site_sandbox.files.read_text(f"{vite}/index.html")
    site_sandbox.files.write(f"{vite}/index.html", re.sub("<h1>.*</h1>", "<h1>Another heading</h1>", text))
    expect_text(page, "h1", "Another heading")


def test_an_open_page_comes_back_after_the_sandbox_was_suspended_for_idleness(
    page: Page, vite_forwarding: Forwarding, site_sandbox: Sandbox, shared_cloud: LocalCloud
) -> None:
    open_vite(page, vite_forwarding)
    page.evaluate("window.isTheSamePage = true")
    # As the service does it when nothing was asked for long: nobody has noted a purpose.
    shared_cloud.client().suspend_microvm(microvmIdentifier=site_sandbox.microvm_id)
    # The page sees its WebSocket end, asks for its server until it is there, and loads itself again.
    page.wait_for_function("window.isTheSamePage === undefined")
    page.wait_for_function("document.querySelector('#greeting')?.textContent")
    assert site_sandbox.refresh() == names.RUNNING
    assert vite_forwarding.is_open


# -- FastAPI -----------------------------------------------------------------------------------------------------------


def post(forwarding: Forwarding, text: str) -> int:
    """Send an event to everybody who listens; to how many it went."""
    return int(curl("--data-binary", text, f"{forwarding.url}/events"))


def test_a_page_shows_server_sent_events_as_they_come(page: Page, fastapi_forwarding: Forwarding) -> None:
    page.goto(fastapi_forwarding.url)
    expect_text(page, "li:nth-child(1)", "first")
    for number, text in enumerate(["second", "third, später"], start=2):
        assert post(fastapi_forwarding, text) >= 1
        expect_text(page, f"li:nth-child({number})", text)
    assert page.evaluate("events.readyState === EventSource.OPEN")


def test_a_page_that_is_left_leaves_nobody_who_listens(page: Page, fastapi_forwarding: Forwarding) -> None:
    page.goto(fastapi_forwarding.url)
    expect_text(page, "li:nth-child(1)", "first")
    page.goto("about:blank")
    assert any(post(fastapi_forwarding, "is anybody there?") == 0 for _ in range(100))


def test_a_login_with_cookies_and_an_absolute_redirect_works_in_a_browser(
    page: Page, fastapi_forwarding: Forwarding
) -> None:
    page.goto(f"{fastapi_forwarding.url}/login")
    assert page.url == f"{fastapi_forwarding.url}/request"
    seen = json.loads(page.inner_text("body"))
    assert dict(seen["headers"])["cookie"] == "session=s3; theme=dark"


def test_the_server_sees_itself_at_localhost_and_is_told_where_the_client_went(fastapi_forwarding: Forwarding) -> None:
    seen = json.loads(curl(f"{fastapi_forwarding.url}/request", "--header", "X-Mine: yes"))
    headers = dict(seen["headers"])
    assert (headers["host"], headers["x-mine"]) == (f"localhost:{FASTAPI_PORT}", "yes")
    assert headers["x-forwarded-host"] == urllib.parse.urlsplit(fastapi_forwarding.url).netloc
    assert seen["client"] in {"127.0.0.1", "::1"}
    assert not [name for name in headers if name.startswith(("x-aws-proxy", "vmnest"))]


def test_a_redirect_to_the_servers_own_host_leads_to_the_forwarder(fastapi_forwarding: Forwarding) -> None:
    answer = curl("--location", "--write-out", "\n%{url_effective}", f"{fastapi_forwarding.url}/request/")
    assert answer.splitlines()[-1] == f"{fastapi_forwarding.url}/request"


def blob_pieces() -> Iterator[bytes]:
    """300 MB of which no two pieces are the same."""
    for number in range(BLOB_MEBIBYTES):
        yield hashlib.sha256(str(number).encode()).digest() * (MEBIBYTE // 32)


def send_blob(address: str, headers: dict[str, str]) -> Any:
    """Upload it, by a length or in chunks; what the server says."""
    connection = http.client.HTTPConnection(address, timeout=STREAM_SECONDS)
    try:
        connection.request("PUT", "/blob", blob_pieces(), headers, encode_chunked="Transfer-Encoding" in headers)
        return json.load(connection.getresponse())
    finally:
        connection.close()


def digest_blob(address: str) -> str:
    """Download it; the digest of what came."""
    connection = http.client.HTTPConnection(address, timeout=STREAM_SECONDS)
    try:
        connection.request("GET", "/blob")
        answer, digest = connection.getresponse(), hashlib.sha256()
        while piece := answer.read(MEBIBYTE):
            digest.update(piece)
        return digest.hexdigest()
    finally:
        connection.close()


@pytest.mark.parametrize(
    "headers", [{"Transfer-Encoding": "chunked"}, {"Content-Length": str(BLOB_MEBIBYTES * MEBIBYTE)}], ids=repr
)
def test_300_mb_go_in_and_come_out_as_they_were(fastapi_forwarding: Forwarding, headers: dict[str, str]) -> None:
    digest = hashlib.sha256()
    for piece in blob_pieces():
        digest.update(piece)
    address = urllib.parse.urlsplit(fastapi_forwarding.url).netloc
    assert send_blob(address, headers) == {"sha256": digest.hexdigest(), "size": BLOB_MEBIBYTES * MEBIBYTE}
    assert digest_blob(address) == digest.hexdigest()


def test_curl_gets_a_part_of_what_it_sent(fastapi_forwarding: Forwarding, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(range(256)) * 4096)
    curl("--upload-file", str(tmp_path / "file"), f"{fastapi_forwarding.url}/blob")
    curl("--range", "65-70", "--output", str(tmp_path / "part"), f"{fastapi_forwarding.url}/blob")
    assert (tmp_path / "part").read_bytes() == b"ABCDEF"


def test_a_websocket_has_the_applications_subprotocol_its_order_and_its_close_code(
    fastapi_forwarding: Forwarding,
) -> None:
    url = fastapi_forwarding.url.replace("http", "ws", 1) + "/echo"
    with websockets.sync.client.connect(url, subprotocols=["echo.v0", "echo.v1"], proxy=None) as socket:  # type: ignore[list-item]
        assert socket.subprotocol == "echo.v1"
        assert socket.recv(timeout=PATIENCE_SECONDS) == "welcome"
        for text in ("hello", "x" * MEBIBYTE):
            socket.send(text)
            assert socket.recv(timeout=PATIENCE_SECONDS) == text
        socket.send("end")
        with pytest.raises(websockets.exceptions.ConnectionClosed) as closed:
            socket.recv(timeout=PATIENCE_SECONDS)
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4001, "as you say")


def test_wrk_meets_no_error(fastapi_forwarding: Forwarding) -> None:
    if shutil.which("wrk") is None:
        pytest.skip("needs wrk (Debian and Ubuntu: apt-get install wrk)")
    report = run("wrk", "-t2", "-c32", "-d1s", f"{fastapi_forwarding.url}/request")
    found = re.search(r"(\d+) requests in", report)
    assert found is not None, report
    assert int(found[1]) > 32
    assert "Socket errors" not in report, report
    assert "Non-2xx" not in report, report


# -- a server that is not there yet ------------------------------------------------------------------------------------


def test_a_page_that_waits_for_its_server_shows_it_once_it_listens(page: Page, site_sandbox: Sandbox) -> None:
    with site_sandbox.forward(LATE_PORT, local_port=0) as forwarding:
        answer = page.goto(forwarding.url)
        assert answer is not None
        assert answer.status == 502
        assert str(LATE_PORT) in page.inner_text("body")
        site_sandbox.files.write("/work/late/index.html", "<h1>here now</h1>")
        words = ["-m", "http.server", str(LATE_PORT), "--bind", "127.0.0.1"]
        with site_sandbox.spawn("python3", words, cwd="/work/late", retain="drop"):
            expect_text(page, "h1", "here now")
