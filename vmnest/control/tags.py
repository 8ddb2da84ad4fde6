"""Tags of images and connectors (not of MicroVMs: the service has none there)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..aws.service import Service
from ..deadline import Deadline
from . import answers

__all__ = ["Tags"]


class Tags:
    """Calls about tags, by ARN. All of them raise ResourceNotFoundError for what does not exist."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def of(self, arn: str, *, deadline: Deadline) -> dict[str, str]:
        """The tags of a resource."""
        answer = self._service.call("ListTags", {"Resource": arn}, deadline=deadline)
        tags = answers.find(answer, "Tags", dict, operation="ListTags") or {}
        return {str(key): str(value) for key, value in tags.items()}

    def add(self, arn: str, tags: Mapping[str, str], *, deadline: Deadline) -> None:
        """Set tags; others stay."""
        self._service.call("TagResource", {"Resource": arn, "Tags": dict(tags)}, deadline=deadline)

    def remove(self, arn: str, keys: Sequence[str], *, deadline: Deadline) -> None:
        """Remove tags; one that is not there is no error."""
        self._service.call("UntagResource", {"Resource": arn, "TagKeys": list(keys)}, deadline=deadline)
