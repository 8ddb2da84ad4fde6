"""Which proxy: held to the standard library's rules, which botocore applies."""

import base64
import urllib.request

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmnest import errors
from vmnest.wire import proxies

PROXY = "http://proxy.example:3128"


def choose(url_host: str = "host.example", *, scheme: str = "http", port: int | None = None, **environ: str):
    found = proxies.choose(scheme=scheme, host=url_host, port=port, environ=environ)
    return None if found is None else found.url


@pytest.mark.parametrize(
    ("environ", "scheme", "expected"),
    [
        ({}, "http", None),
        ({"HTTP_PROXY": PROXY}, "http", PROXY),
        ({"HTTP_PROXY": PROXY}, "https", None),
        ({"HTTPS_PROXY": PROXY}, "https", PROXY),
        ({"HTTPS_PROXY": PROXY, "https_proxy": "http://small:1"}, "https", "http://small:1"),
        ({"HTTPS_PROXY": PROXY, "https_proxy": ""}, "https", None),
        ({"HTTP_PROXY": PROXY, "REQUEST_METHOD": "GET"}, "http", None),
        ({"http_proxy": PROXY, "REQUEST_METHOD": "GET"}, "http", PROXY),
        ({"ALL_PROXY": PROXY}, "http", None),
        ({"HTTP_PROXY": "proxy.example:3128"}, "http", PROXY),
        ({"HTTP_PROXY": "http://proxy.example"}, "http", "http://proxy.example:80"),
        ({"HTTP_PROXY": "https://proxy.example/"}, "http", "https://proxy.example:443"),
        ({"HTTP_PROXY": "http://[::1]:3128"}, "http", "http://[::1]:3128"),
    ],
)
def test_the_variables_are_read_as_botocore_reads_them(environ, scheme, expected):
    assert choose(scheme=scheme, **environ) == expected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HTTPS_PROXY": PROXY}, ("HTTPS_PROXY", PROXY)),
        ({"HTTPS_PROXY": PROXY, "https_proxy": ""}, ("https_proxy", "")),
        ({}, ("HTTPS_PROXY", "")),
    ],
)
def test_the_variable_that_counts_can_be_named(environ, expected):
    assert proxies.find_variable("https", environ) == expected


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "a.localhost", "127.0.0.1", "127.1", "127.9.8.7", "::1"])
def test_loopback_never_goes_through_a_proxy(host):
    assert choose(host, HTTP_PROXY=PROXY) is None


@pytest.mark.parametrize("host", ["localhost.example", "127.0.0.1.example", "128.0.0.1", "notlocalhost"])
def test_what_only_looks_like_loopback_does(host):
    assert choose(host, HTTP_PROXY=PROXY) == PROXY


@given(
    no_proxy=st.lists(
        st.sampled_from(
            ["host.example", ".example", "example", "EXAMPLE", "ost.example", "host.example:80", " other ", "*", ""]
        )
    ),
    host=st.sampled_from(["host.example", "a.host.example", "example", "hostxexample", "other"]),
    port=st.sampled_from([None, 80, 8080]),
)
def test_exclusions_are_those_of_the_standard_library(no_proxy, host, port):
    text = ",".join(no_proxy)
    netloc = host if port is None else f"{host}:{port}"
    judge = urllib.request.proxy_bypass_environment(netloc, proxies={"no": text})
    assert (choose(host, port=port, HTTP_PROXY=PROXY, NO_PROXY=text) is None) == bool(judge)


def test_a_login_is_sent_decoded_and_does_not_print():
    found = proxies.choose(
        scheme="http", host="a", port=None, environ={"HTTP_PROXY": "http://us%40er:pass%3Aword@proxy.example:1"}
    )
    assert found.authorization == "Basic " + base64.b64encode(b"us@er:pass:word").decode()
    assert found.url == "http://proxy.example:1"
    assert "Basic" not in repr(found)


@pytest.mark.parametrize(
    "value",
    ["socks5://a:1", "http://a:99999", "http://a:0", "http://", "http://a b:1", "hunter2@", "http://x:hunter2@a:y"],
)
def test_a_proxy_that_is_none_names_its_variable_and_not_itself(value):
    with pytest.raises(errors.SettingError, match="HTTP_PROXY") as caught:
        choose(HTTP_PROXY=value)
    assert "hunter2" not in f"{caught.value.message}{caught.value.hint}"
