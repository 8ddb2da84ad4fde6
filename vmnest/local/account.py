"""What the local account keeps beside VMs and images: tags, objects, roles, logs, connectors."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .. import rendezvous
from . import buckets, faults, iam, logs, network_connectors

_LOG = logging.getLogger(__name__)

TAGS_FILE = "tags.json"
MAX_TAGS = 50
_TOO_MANY = f"A resource can have at most {MAX_TAGS} tags."


class Tags:
    """Tags of resources, by ARN, kept in the folder. Thread-safe."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, TAGS_FILE)
        self._lock = threading.Lock()  # guards the tags and their file
        self._tags = self._load()

    def of(self, arn: str) -> dict[str, str]:
        """The tags of a resource."""
        with self._lock:
            return dict(self._tags.get(arn, {}))

    def add(self, arn: str, tags: Mapping[str, str]) -> None:
        """Set tags; others stay.

        Raises:
            faults.Fault: the resource would have too many.
        """
        with self._lock:
            merged = {**self._tags.get(arn, {}), **tags}
            if len(merged) > MAX_TAGS:
                raise faults.Fault(_TOO_MANY, error_type="InvalidParameterValueException", status=400)
            self._tags[arn] = merged
            self._save()

    def replace(self, arn: str, tags: Mapping[str, str]) -> None:
        """Set the tags of a resource that is new, or goes: it has these and no others.

        Raises:
            faults.Fault: the resource would have too many.
        """
        if len(tags) > MAX_TAGS:
            raise faults.validation(_TOO_MANY)
        with self._lock:
            before = self._tags.pop(arn, None)
            if tags:
                self._tags[arn] = dict(tags)
            if before or tags:
                self._save()

    def remove(self, arn: str, keys: Sequence[str]) -> None:
        """Remove tags; those that are not there are no error."""
        with self._lock:
            left = {key: value for key, value in self._tags.get(arn, {}).items() if key not in keys}
            self._tags[arn] = left
            self._save()

    def _load(self) -> dict[str, dict[str, str]]:
        try:
            with open(self._path, "rb") as file:
                return _parse_tags(file.read())
        except FileNotFoundError:
            return {}
        except ValueError:
            os.rename(self._path, f"{self._path}.bad")
            _LOG.warning("%s is damaged; it is kept as %s.bad", self._path, TAGS_FILE)
            return {}

    def _save(self) -> None:
        rendezvous.write_file(self._path, json.dumps(self._tags).encode())


@dataclass(frozen=True)
class Account:
    """Everything that the account keeps in the folder, opened once: the parts know their files by heart."""

    tags: Tags
    objects: buckets.Store
    roles: iam.Roles
    logs: logs.Logs
    connectors: network_connectors.NetworkConnectors


def open_account(folder: str) -> Account:
    """The account in that folder."""
    roles = iam.Roles(folder)
    return Account(
        Tags(folder),
        objects=buckets.Store(folder),
        roles=roles,
        logs=logs.Logs(folder),
        connectors=network_connectors.NetworkConnectors(folder, may_do=roles.may_do),
    )


def _parse_tags(text: bytes) -> dict[str, dict[str, str]]:
    fields = json.loads(text)
    if not isinstance(fields, dict) or not all(isinstance(tags, dict) for tags in fields.values()):
        raise ValueError("not a map of maps")
    return {str(arn): {str(key): str(value) for key, value in tags.items()} for arn, tags in fields.items()}
