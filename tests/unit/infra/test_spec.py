"""What a sandbox.yaml that says nothing asks for."""

from __future__ import annotations

from vmnest.infra.spec import ImageConfig, Stack


def test_the_defaults_are_those_that_users_of_0_1_2_know() -> None:
    stack = Stack()
    assert (stack.project, stack.stack, stack.label) == ("agent-microvm", "dev", "agent-microvm/dev")
    assert (stack.image.name, stack.role.name, stack.bucket.name) == ("agent-sandbox-guest", "agent-sandbox-exec", None)
    assert (stack.egress, stack.region, stack.image.guest_dir) == (None, None, None)


def test_no_representation_shows_the_images_variables() -> None:
    assert "hunter2" not in repr(Stack(image=ImageConfig(environment={"PASSWORD": "hunter2"})))
