"""Wishes that only the local cloud understands are one header of ASCII, and none if there are none."""

import json

from vmnest.control import local_options


def test_without_options_there_is_no_header():
    assert local_options.to_headers(None) == []
    assert local_options.to_headers({}) == []


def test_options_are_one_line_of_ascii():
    ((name, value),) = local_options.to_headers({"egress_allow": ["é.example", "a"], "cpus": 1})
    assert name == "vmnest-local-options"
    assert value.isascii()
    assert "\n" not in value
    assert json.loads(value) == {"egress_allow": ["é.example", "a"], "cpus": 1}
