"""What the build of an image leaves behind: its layers, and how its VMs are started. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import cast

from ..wire import names
from . import hooks

Wire = Mapping[str, object]


@dataclass(frozen=True)
class RunConfig:
    """How a VM of the image is started.

    Attributes:
        command: Its main process.
        environment: What the Dockerfile's ENV and the image's environment variables say.
        workdir: Where the main process starts.
        exposed: Ports that the Dockerfile names, as ``8080/tcp``.
        hooks: Which lifecycle hooks are called, where and for how long.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    workdir: str
    exposed: tuple[str, ...] = ()
    hooks: hooks.Config = hooks.NO_HOOKS


@dataclass(frozen=True)
class Sizes:
    """Bytes of what was built: all layers, and what a VM had written on top of them when it was ready."""

    code_install_bytes: int = 0
    disk_snapshot_bytes: int = 0


@dataclass(frozen=True)
class Built:
    """A built image.

    Attributes:
        layers: Names of its layers in the store (``build_layers.Layers.paths``), the topmost first.
        config: How its VMs are started.
        sizes: Of what was built.
    """

    layers: tuple[str, ...]
    config: RunConfig
    sizes: Sizes = Sizes()

    def to_wire(self) -> dict[str, object]:
        """A dict of plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_wire(cls, wire: Wire) -> Built:
        """What ``to_wire`` made the dict of.

        Raises:
            ValueError: it is no such dict.
        """
        try:
            config = cast("dict[str, object]", wire["config"])
            return cls(
                layers=_texts(wire["layers"]),
                config=RunConfig(
                    command=_texts(config["command"]),
                    environment=_pairs(config["environment"]),
                    workdir=str(config["workdir"]),
                    exposed=_texts(config["exposed"]),
                    hooks=hooks.Config(**cast("dict[str, int]", config["hooks"])),
                ),
                sizes=Sizes(**cast("dict[str, int]", wire["sizes"])),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no built image: {error!r}") from error


def platform_environment(image_arn: str, image_version: str) -> dict[str, str]:
    """What AWS sets in every MicroVM."""
    return {
        "AWS_LAMBDA_MICROVM_IMAGE_NAME": image_arn.rpartition(":")[2],
        "AWS_LAMBDA_MICROVM_IMAGE_ARN": image_arn,
        "AWS_LAMBDA_MICROVM_IMAGE_VERSION": image_version,
        "AWS_REGION": names.LOCAL_REGION,
    }


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise TypeError("a list of texts is missing")
    return tuple(value)


def _pairs(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in (*value, *value.values())):
        raise TypeError("a mapping of texts is missing")
    return dict(value)
