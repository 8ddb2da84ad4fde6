"""The header ``vmnest-local-options``."""

import dataclasses
import json

import pytest

from vmnest.local import faults, options


def test_without_the_header_the_defaults_hold():
    assert options.parse_options(None) == options.Options(cpus=None, memory_mib=2048)


def test_what_is_asked_for_is_read():
    assert options.parse_options('{"cpus": 1.5, "memory": 512, "egress_allow": []}') == options.Options(1.5, 512)


def test_what_holds_is_told():
    told = options.Options(2.0, 256, ("pypi.org",)).to_wire()
    assert told == {"cpus": 2.0, "memory": 256, "egress": ["pypi.org"]}


def test_what_may_be_reached_is_read_in_one_form():
    found = options.parse_options('{"egress_allow": ["PyPI.org.", "pypi.org:443", "pypi.org", "Internet"]}')
    assert found.egress_allow == ("pypi.org", "pypi.org:443", "internet")
    assert found.rules.texts == found.egress_allow
    assert not options.Options().rules.rules


def test_a_note_is_read_as_it_was_written():
    kept = options.Options(2.0, 256, ("pypi.org", "[::1]:80"))
    assert options.Options.from_note(json.loads(json.dumps(dataclasses.asdict(kept)))) == kept
    assert options.Options.from_note({"cpus": None, "memory_mib": 256}) == options.Options(None, 256)


@pytest.mark.parametrize("members", [{"disk": 1}, {"egress_allow": ["a b"]}, {"egress_allow": 1}])
def test_a_note_that_makes_no_sense_is_none(members):
    with pytest.raises(ValueError, match=r"."):
        options.Options.from_note(members)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be a JSON object"),
        ("[]", "must be a JSON object"),
        ('{"disk": 1}', "unknown members: disk"),
        ('{"cpus": 0}', "cpus must be"),
        ('{"cpus": true}', "cpus must be"),
        ('{"cpus": "1"}', "cpus must be"),
        ('{"cpus": 1e9}', "cpus must be"),
        ('{"cpus": NaN}', "cpus must be"),
        ('{"memory": 1}', "memory must be"),
        ('{"memory": 512.5}', "memory must be"),
        ('{"memory": true}', "memory must be"),
        ('{"egress_allow": "internet"}', "egress_allow must be a list of hosts"),
        ('{"egress_allow": ["*"]}', "not allowed to a sandbox as egress"),
        ('{"egress_allow": [1]}', "must be texts"),
    ],
)
def test_what_makes_no_sense_is_a_validation_error(text, message):
    with pytest.raises(faults.Fault, match=message) as caught:
        options.parse_options(text)
    assert (caught.value.status, caught.value.error_type) == (400, "ValidationException")


@pytest.mark.parametrize(("text", "memory"), [(None, 512), ("{}", 512), ('{"cpus": 1}', 512), ('{"memory": 300}', 300)])
def test_memory_is_the_images_unless_it_is_asked_for(text, memory):
    assert options.parse_options(text, memory_mib=512).memory_mib == memory


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        (None, None),
        ("{}", None),
        ('{"egress_allow": null}', None),
        ('{"egress_allow": []}', ()),
        ('{"egress_allow": ["PyPI.org"]}', ("pypi.org",)),
    ],
)
def test_what_a_build_may_reach_may_be_said_or_not(text, allowed):
    assert options.parse_build_egress(text) == allowed


@pytest.mark.parametrize("text", ["", "[]", '{"egress_allow": 1}', '{"other": 1}'])
def test_nonsense_for_a_build_is_a_validation_error(text):
    with pytest.raises(faults.Fault) as caught:
        options.parse_build_egress(text)
    assert caught.value.status == 400
