"""How large versions of images are: the memory of what starts from them, and the snapshots that are kept of them."""

from __future__ import annotations

from .. import errors
from .. import target as targets
from . import crowd
from .estimates import Size
from .prices import Range

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..control.images import Images, ImageVersion, Snapshot
    from ..deadline import Deadline

__all__ = ["Key", "Sizes", "key_of"]

# Region, ARN and number of a version.
Key = tuple[str, str, str]

_SUCCESSFUL = "SUCCESSFUL"


def key_of(view: Mapping[str, object]) -> Key | None:
    """The version that a sandbox was started from, if it is known."""
    members = [view.get(member) for member in ("region", "image_arn", "image_version")]
    region, image_arn, number = (member if isinstance(member, str) else "" for member in members)
    return (region, image_arn, number) if image_arn and number else None


class Sizes:
    """Asks for sizes, several at a time. What cannot be asked for is a size that is not known, with the reason.

    Args:
        region: The region to ask, instead of the recorded ones.
        deadline: When to stop waiting.
    """

    def __init__(self, *, region: str | None, deadline: Deadline) -> None:
        self._region = region
        self._deadline = deadline
        self._images: dict[str, Images | errors.VmnestError] = {}

    def find(self, keys: Sequence[Key]) -> dict[Key, Size]:
        """The size of each."""
        distinct = list(dict.fromkeys(keys))
        for key in distinct:
            self._reach(key[0], key[1])  # before threads do
        return dict(zip(distinct, crowd.map_parallel(self._ask, distinct), strict=True))

    def list_kept(self, region: str) -> list[Key]:
        """The versions of all images in a region, but those that failed: nothing is kept of them.

        Raises:
            errors.VmnestError: they cannot be listed.
        """
        images = self._require(region, None)

        def versions_of(image_arn: str) -> list[Key]:
            try:
                found = list(images.versions(image_arn, deadline=self._deadline))
            except errors.ImageNotFoundError:
                return []  # it was deleted meanwhile
            return [(region, image_arn, version.image_version) for version in found if version.state == _SUCCESSFUL]

        arns = [image.image_arn for image in images.list(deadline=self._deadline)]
        return [key for keys in crowd.map_parallel(versions_of, arns) for key in keys]

    def _ask(self, key: Key) -> Size:
        region, image_arn, number = key
        try:
            images = self._require(region, image_arn)
            version = images.version(image_arn, number, deadline=self._deadline)
        except errors.VmnestError as error:
            return Size(reason=error.message)
        try:
            found = self._snapshots(images, version)
        except errors.VmnestError as error:
            return Size(_memory(version), reason=error.message)
        return _to_size(version, found)

    def _snapshots(self, images: Images, version: ImageVersion) -> list[Snapshot]:
        image_arn, number = version.image_arn, version.image_version
        builds = images.builds(image_arn, number, deadline=self._deadline)
        return [
            images.snapshot(image_arn, number, build.build_id, deadline=self._deadline)
            for build in builds
            if build.state == _SUCCESSFUL
        ]

    def _require(self, region: str, image_arn: str | None) -> Images:
        images = self._reach(region, image_arn)
        if isinstance(images, errors.VmnestError):
            raise images
        return images

    def _reach(self, region: str, image_arn: str | None) -> Images | errors.VmnestError:
        if region not in self._images:
            try:
                place = targets.resolve(local=False, region=self._region or region or None, arn=image_arn)
                self._images[region] = place.control(deadline=self._deadline).images
            except errors.VmnestError as error:
                self._images[region] = error
        return self._images[region]


def _to_size(version: ImageVersion, snapshots: Sequence[Snapshot]) -> Size:
    """There is a build for each kind of processor. Whether all of them are billed nobody tells; a launch reads one."""
    least, most = [], []
    for snapshot in snapshots:
        if snapshot.memory_bytes is not None and snapshot.disk_bytes is not None:
            least.append(snapshot.memory_bytes + snapshot.disk_bytes)
            most.append(least[-1] + (snapshot.code_bytes or 0))
    if not least:
        return Size(_memory(version), reason="the service does not tell how large the snapshots of its image are")
    return Size(_memory(version), loaded=Range(min(least), max(most)), stored=Range(min(least), sum(most)))


def _memory(version: ImageVersion) -> int:
    from ..sandbox import launch

    return version.memory_mib or launch.BASE_MEMORY_MIB
