"""The built-in image."""

from vmnest.aws import shapes
from vmnest.local import image_builtin, image_rules

IMAGE = image_builtin.built_in(5.0)


def test_it_can_be_run():
    assert (IMAGE.name, IMAGE.state, IMAGE.is_built_in) == ("local", "CREATED", True)
    assert IMAGE.latest_active.label == "1.0"
    assert IMAGE.is_consistent


def test_it_is_the_same_in_each_daemon():
    assert image_builtin.built_in(5.0) == IMAGE
    assert len({IMAGE.image_id, *(build.build_id for build in IMAGE.versions[0].builds)}) == 3


def test_it_tells_the_hooks_and_their_times():
    hooks = IMAGE.versions[0].settings["hooks"]
    assert hooks["port"] == 9000
    for name in image_rules.RUNTIME_HOOKS:
        assert hooks["microvmHooks"][name] == "ENABLED"
        assert 1 <= hooks["microvmHooks"][f"{name}TimeoutInSeconds"] <= 60
    assert hooks["microvmImageHooks"]["ready"] == "ENABLED"
    shape = shapes.load("lambda-microvms").operation("GetMicrovmImageVersion").output.members["hooks"].shape
    assert set(hooks) <= set(shape.members)
    assert set(hooks["microvmHooks"]) <= set(shape.members["microvmHooks"].shape.members)
