"""The header ``vmnest-local-options``."""

import pytest

from vmnest.local import faults, options


def test_without_the_header_the_defaults_hold():
    assert options.parse_options(None) == options.Options(cpus=None, memory_mib=2048)


def test_what_is_asked_for_is_read():
    assert options.parse_options('{"cpus": 1.5, "memory": 512, "egress_allow": []}') == options.Options(1.5, 512)


def test_what_holds_is_told():
    assert options.Options(2.0, 256).to_wire() == {"cpus": 2.0, "memory": 256}


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
        ('{"egress_allow": ["internet"]}', "egress_allow must be empty"),
    ],
)
def test_what_makes_no_sense_is_a_validation_error(text, message):
    with pytest.raises(faults.Fault, match=message) as caught:
        options.parse_options(text)
    assert (caught.value.status, caught.value.error_type) == (400, "ValidationException")
