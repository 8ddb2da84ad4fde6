"""The seam between lifecycle and isolation."""

from __future__ import annotations

import dataclasses

import pytest

from vmnest.local.drivers import interface, namespace


def test_isolations_are_ordered_from_the_weakest() -> None:
    assert interface.ISOLATIONS == ("namespace", "kernel", "vm")


def test_a_launch_does_not_change() -> None:
    launch = interface.Launch("id", "/f", environment={}, memory_mib=1, disk_bytes=1, max_seconds=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        launch.folder = "/g"  # type: ignore[misc]


def test_the_namespace_driver_is_a_driver(cell_driver: namespace.NamespaceDriver) -> None:
    driver: interface.Driver = cell_driver
    assert (driver.name, driver.isolation) == ("namespace", "namespace")
