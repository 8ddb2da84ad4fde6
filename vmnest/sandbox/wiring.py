"""Image, role and connector of a new sandbox: as given, else by the environment, else what infrastructure offers.

The record of stacks is looked at only for what is still open after flag and environment, and only here: no module that
every command loads knows of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .. import errors, settings
from .. import target as targets

__all__ = ["Wiring", "egress_connector", "is_of_one_account", "resolve"]


class Wiring(NamedTuple):
    """What a sandbox starts from, and where.

    Attributes:
        place: The target.
        image: ARN or name of the image.
        role: The role that code in it gets, or None.
        sources: Of what neither the caller nor the environment named, where it is from: ``output of project/stack``.
    """

    place: targets.Target
    image: str
    role: str | None
    sources: Mapping[str, str]


def resolve(
    *, image: str | None, role: str | None, local: bool | None, region: str | None, environ: Mapping[str, str]
) -> Wiring:
    """Find what is not given.

    Raises:
        errors.UsageError: there is no image to start from, or it is not where the sandbox is to be.
        errors.RegionNotFoundError: it is AWS, and no region is configured anywhere.
        errors.ConfigurationError, errors.StateFileError: what infrastructure offers cannot be read.
    """
    from ..infra import outputs

    is_local = settings.is_local(local, environ=environ)
    sources = {}
    open_image = not image and targets.configured("image_arn", is_local=is_local, environ=environ) is None
    found = outputs.resolve(outputs.IMAGE, is_local=is_local, environ=environ) if open_image else None
    if found is not None:
        image = found.value
        sources[outputs.IMAGE] = found.source
    place = targets.resolve(local=local, region=region, arn=image, environ=environ)
    if found is not None:
        _check_region(found, place)
    image = place.image(image)
    role = place.role(role)
    # On this machine a role opens nothing: what names the image has no need of the rest.
    if role is None and (found is not None or not place.is_local):
        offered = outputs.resolve(outputs.EXECUTION_ROLE, is_local=is_local, environ=environ, of_image=image)
        if offered is not None and is_of_one_account(image, offered.value):
            role = offered.value
            sources[outputs.EXECUTION_ROLE] = offered.source
    return Wiring(place, image, role, sources)


def egress_connector(*, local: bool | None, environ: Mapping[str, str]) -> str | None:
    """The egress connector that is configured, else the one that infrastructure offers, else None."""
    is_local = settings.is_local(local, environ=environ)
    configured = targets.configured("egress_connector", is_local=is_local, environ=environ)
    if configured is not None:
        return configured
    from ..infra import outputs

    found = outputs.resolve(outputs.EGRESS_CONNECTOR, is_local=is_local, environ=environ)
    return None if found is None else found.value


def _check_region(found: tuple[str, str], place: targets.Target) -> None:
    from ..aws import region as regions

    image, source = found
    if not place.is_local and regions.of_arn(image) not in ("", place.region):
        raise errors.UsageError(
            f"the image (the {source}) is in {regions.of_arn(image)}, and the sandbox is to be in {place.region}",
            hint="Leave the region out, name another image with --image, or make the stack there, too.",
        )


def is_of_one_account(image: str, role: str) -> bool:
    """The stack may be of another account than the image that the caller named; an image's name alone tells nothing."""
    return not image.startswith("arn:") or image.split(":")[4:5] == role.split(":")[4:5]
