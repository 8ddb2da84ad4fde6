"""What the service demands beyond its model."""

import pytest

from vmnest.aws import shapes
from vmnest.local import bounds

MODEL = shapes.load("lambda-microvms")


def policy(seconds):
    return {"idlePolicy": {"maxIdleDurationSeconds": seconds}}


def test_too_long_an_idle_time_is_said_in_the_services_words():
    assert bounds.find_violations("RunMicrovm", policy(28801)) == [
        "Value '28801' at 'idlePolicy.maxIdleDurationSeconds' failed to satisfy constraint: "
        "Member must have value less than or equal to 28800"
    ]


@pytest.mark.parametrize("params", [policy(28800), policy(None), {}, {"idlePolicy": None}, {"idlePolicy": 3}])
def test_what_is_within_or_absent_is_fine(params):
    assert bounds.find_violations("RunMicrovm", params) == []


def test_other_operations_have_no_such_bounds():
    assert bounds.find_violations("GetMicrovm", policy(28801)) == []


def test_every_bound_is_of_a_number_in_the_model():
    for operation, path in bounds._MOST:
        shape = MODEL.operation(operation).input
        for name in path:
            shape = shape.members[name].shape
        assert shape.kind == "integer"
