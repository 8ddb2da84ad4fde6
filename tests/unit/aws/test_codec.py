"""Which codec a service gets, and what that costs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from vmnest import errors
from vmnest.aws import classic, codec, s3_codec
from vmnest.transport import Headers


@pytest.mark.parametrize(
    ("service", "kind"),
    [
        ("lambda-microvms", codec.RestJson),
        ("lambda-core", codec.RestJson),
        ("s3", s3_codec.Codec),
        *((name, classic.Codec) for name in sorted(codec.CLASSIC - {"s3"})),
    ],
)
def test_a_service_gets_the_codec_of_its_protocol(service, kind):
    made = codec.load(service)
    assert type(made) is kind
    assert made.service == service


def test_a_service_that_nobody_knows_is_refused():
    with pytest.raises(errors.DependencyMissingError, match="coffee"):
        codec.load("coffee")


def test_without_botocore_the_classic_services_say_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(errors.DependencyMissingError, match="not installed") as caught:
        codec.load("sts")
    assert "pip install" in caught.value.hint


def test_the_way_to_a_sandbox_imports_no_botocore():
    code = (
        "import sys; from vmnest.aws import service, codec; codec.load('lambda-microvms'); codec.load('lambda-core');"
        "print([name for name in sys.modules if name.partition('.')[0] in {'botocore', 'jmespath', 'dateutil', 'xml'}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_rest_json_is_called_where_the_caller_says():
    made = codec.load("lambda-core")
    request = made.build("ListNetworkConnectors", {"MaxItems": 5})
    assert made.locate(request, endpoint="http://x", region="eu-west-1") == ("http://x", "eu-west-1", "lambda")
    with pytest.raises(ValueError, match="endpoint"):
        made.locate(request, endpoint=None, region="eu-west-1")


def test_rest_json_takes_answers_as_they_are():
    made = codec.load("lambda-core")
    request = made.build("ListNetworkConnectors", {})
    answer = codec.Answer(301, Headers([("x-amz-bucket-region", "eu-west-1")]), b"{}")
    assert made.status("ListNetworkConnectors", answer) == 301
    assert made.other_region(request, answer) is None


@pytest.mark.parametrize(("body", "is_own"), [(b' {"a": 1}', True), (b"<html>", False), (b"", False), (b"[1]", False)])
def test_only_an_object_is_an_answer_of_rest_json(body, is_own):
    made = codec.load("lambda-core")
    assert made.is_own_body(body) is is_own
    assert made.is_page("ListNetworkConnectors", codec.Answer(500, Headers([]), body)) is not is_own
