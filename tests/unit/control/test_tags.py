"""Tags are set whole and removed by their keys, and what does not exist is an error and not without tags."""

import json

import pytest

from tests.support.control import IMAGE_ARN, Controls
from tests.support.peers import Answer, json_answer
from vmnest import errors
from vmnest.control.tags import Tags


def test_tags_are_read_set_and_removed(controls: Controls):
    made = controls(json_answer(200, {"Tags": {"a": "b"}}), Answer(204), Answer(204))
    tags = Tags(made.service)
    assert tags.of(IMAGE_ARN, deadline=made.deadline()) == {"a": "b"}
    tags.add(IMAGE_ARN, {"c": "d"}, deadline=made.deadline())
    tags.remove(IMAGE_ARN, ["a", "x y"], deadline=made.deadline())
    _, added, removed = made.peer.requests
    assert (added.method, json.loads(added.body)) == ("POST", {"Tags": {"c": "d"}})
    assert removed.method == "DELETE"
    assert removed.target.endswith("?tagKeys=a&tagKeys=x%20y")


def test_what_does_not_exist_has_no_tags(controls: Controls):
    made = controls(json_answer(404, {"Message": "no such"}, headers={"x-amzn-errortype": "ResourceNotFoundException"}))
    with pytest.raises(errors.ResourceNotFoundError):
        Tags(made.service).of(IMAGE_ARN, deadline=made.deadline())
