"""botocore's service models, read as data: operations, shapes and their members.

The models are JSON files in botocore's package. They are found without importing botocore (its import costs more than
a whole command) and turned into objects piece by piece, as operations ask for them: of 78 structures a command needs
four. What a model uses and we cannot encode is refused by name when it is asked for, never encoded wrongly.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import zlib
from collections.abc import Mapping
from typing import Any

from .. import errors

__all__ = [
    "Member",
    "Model",
    "Operation",
    "Shape",
    "install_hint",
    "load",
    "load_from",
    "read_data",
    "read_partitions",
    "require_botocore",
]

BOTOCORE_NEEDED = "1.43.35"

URI, QUERY, HEADER = "uri", "querystring", "header"
_LOCATIONS = {URI, QUERY, HEADER}
_NUMBERS = {"integer", "long"}
_PLAIN = {"string", "boolean", *_NUMBERS}
_KINDS = {"structure", "list", "map", "timestamp", *_PLAIN}
_UNSUPPORTED_IN_SHAPES = {"payload", "document", "eventstream", "eventpayload", "eventheader"}
_UNSUPPORTED_IN_MEMBERS = {"streaming", "jsonvalue", "hostLabel", "requiresLength"}
_UNSUPPORTED_IN_OPERATIONS = {"endpoint", "httpChecksum", "httpChecksumRequired", "requestcompression", "authtype"}
# Secrets that models older than botocore 1.43.67 do not mark as such.
_SENSITIVE = {"RunMicrovmRequestRunHookPayloadString", "EnvironmentVariableValue"}
_GZIP = 31  # zlib's name for "with a gzip header"; the gzip module costs more than the decompression


class Member:
    """A named part of a structure, or the element, key or value of a collection (whose ``name`` is empty)."""

    __slots__ = ("_model", "_shape_name", "is_token", "location", "name", "wire_name")

    def __init__(self, model: Model, *, name: str, raw: Mapping[str, Any]) -> None:
        model.refuse(f"member {name}", used=raw.keys() & _UNSUPPORTED_IN_MEMBERS)
        self._model = model
        self._shape_name: str = raw["shape"]
        self.name = name
        self.wire_name: str = raw.get("locationName", name)
        self.location: str | None = raw.get("location")
        self.is_token: bool = raw.get("idempotencyToken", False)
        if self.location is not None and model.is_strict:
            self._check_location()

    def _check_location(self) -> None:
        kind = self.shape.kind
        if kind == "list" and self.location == QUERY:
            kind = self.shape.element.kind
        if self.location not in _LOCATIONS or kind not in _PLAIN:
            raise _unsupported(self._model.service, f"member {self.name}", f"{kind} in {self.location}")

    @property
    def shape(self) -> Shape:
        """What the member holds."""
        return self._model.shape(self._shape_name)


class Shape:
    """A type of the model. Which attributes have a meaning depends on ``kind``, botocore's word for the type."""

    def __init__(self, model: Model, *, name: str, raw: Mapping[str, Any]) -> None:
        self._model = model
        self._raw = raw
        self.name = name
        self.kind: str = raw["type"]
        model.refuse(f"shape {name}", used=raw.keys() & _UNSUPPORTED_IN_SHAPES)
        model.refuse(f"shape {name}", used={self.kind} - _KINDS)
        self.payload: str | None = raw.get("payload")  # the member that is the whole body
        self.minimum: int | None = raw.get("min")
        self.maximum: int | None = raw.get("max")
        self.pattern: str | None = raw.get("pattern")
        self.choices: tuple[str, ...] = tuple(raw.get("enum", ()))
        self.required: frozenset[str] = frozenset(raw.get("required", ()))
        self.is_sensitive: bool = raw.get("sensitive", name in _SENSITIVE)
        self.is_union: bool = raw.get("union", False)
        self.timestamp_format: str = raw.get("timestampFormat", "unixTimestamp")
        error: Mapping[str, Any] = raw.get("error", {})
        self.status: int = error.get("httpStatusCode", 500 if raw.get("fault") else 400)

    @functools.cached_property
    def members(self) -> dict[str, Member]:
        """Of a structure: name → member, in the order of the model."""
        raw: Mapping[str, Mapping[str, Any]] = self._raw.get("members", {})
        return {name: Member(self._model, name=name, raw=member) for name, member in raw.items()}

    @functools.cached_property
    def by_wire_name(self) -> dict[str, Member]:
        """Of a structure: the members that travel in the body, by their name there."""
        return {member.wire_name: member for member in self.members.values() if member.location is None}

    @functools.cached_property
    def element(self) -> Shape:
        """Of a list."""
        return Member(self._model, name="", raw=self._raw["member"]).shape

    @functools.cached_property
    def key(self) -> Shape:
        """Of a map."""
        return Member(self._model, name="", raw=self._raw["key"]).shape

    @functools.cached_property
    def value(self) -> Shape:
        """Of a map."""
        return Member(self._model, name="", raw=self._raw["value"]).shape


class Operation:
    """One call of a service. ``output`` is None where the answer has no content."""

    def __init__(self, model: Model, *, name: str, raw: Mapping[str, Any]) -> None:
        model.refuse(f"operation {name}", used=raw.keys() & _UNSUPPORTED_IN_OPERATIONS)
        self.model = model
        self.name = name
        self.method: str = raw["http"]["method"]
        self.path_template: str = raw["http"]["requestUri"]
        if model.is_strict and ("+}" in self.path_template or "?" in self.path_template):
            raise _unsupported(model.service, f"operation {name}", f"the path {self.path_template}")
        self.success_status: int = raw["http"].get("responseCode", 200)
        self.input: Shape | None = model.shape(raw["input"]["shape"]) if "input" in raw else None
        self.output: Shape | None = model.shape(raw["output"]["shape"]) if "output" in raw else None
        self.is_idempotent: bool = raw.get("idempotent", False) or raw.get("readonly", False)
        self.is_look: bool = self.method in {"GET", "HEAD"}  # changes nothing

    @functools.cached_property
    def token_member(self) -> str | None:
        """The member that makes a repeated request the same request, if there is one."""
        members = {} if self.input is None else self.input.members
        return next((name for name, member in members.items() if member.is_token), None)


class Model:
    """A service's model. Objects are made when they are asked for, and kept. Safe to share between threads.

    Args:
        service: Its name.
        raw: The data.
        is_strict: Refuse what ``shapes`` cannot encode. Without it the model only describes, and others encode.
    """

    def __init__(self, service: str, raw: Mapping[str, Any], *, is_strict: bool = True) -> None:
        metadata: Mapping[str, Any] = raw["metadata"]
        self.service = service
        self.is_strict = is_strict
        self.refuse("the service", used={metadata["protocol"]} - {"rest-json"})
        self.api_version: str = metadata["apiVersion"]
        self.signing_name: str = metadata.get("signingName", metadata["endpointPrefix"])
        self._raw_operations: Mapping[str, Mapping[str, Any]] = raw["operations"]
        self._raw_shapes: Mapping[str, Mapping[str, Any]] = raw["shapes"]
        self._operations: dict[str, Operation] = {}
        self._shapes: dict[str, Shape] = {}

    def refuse(self, what: str, *, used: set[str]) -> None:
        """Raise if a part of the model uses features that ``shapes`` cannot encode."""
        if used and self.is_strict:
            raise _unsupported(self.service, what, ", ".join(sorted(used)))

    def operation(self, name: str) -> Operation:
        """The operation of that name.

        Raises:
            errors.UnsupportedError: the installed botocore does not know it, or it needs what we cannot encode.
        """
        if name not in self._operations:
            if name not in self._raw_operations:
                raise errors.UnsupportedError(
                    f"{self.service} has no operation {name} in the installed botocore ({self.api_version})",
                    hint="Install a newer botocore.",
                )
            # Two threads may both make it; either object will do.
            self._operations[name] = Operation(self, name=name, raw=self._raw_operations[name])
        return self._operations[name]

    def shape(self, name: str) -> Shape:
        """The shape of that name; KeyError if there is none."""
        if name not in self._shapes:
            self._shapes[name] = Shape(self, name=name, raw=self._raw_shapes[name])
        return self._shapes[name]

    def error(self, name: str) -> Shape | None:
        """The shape of an error, or None if the model has none of that name."""
        raw = self._raw_shapes.get(name, {})
        return self.shape(name) if raw.get("exception") else None

    @functools.cached_property
    def routes(self) -> dict[tuple[str, int], list[tuple[tuple[str, ...], str]]]:
        """(method, number of segments) → the path templates in segments, with their operations' names."""
        routes: dict[tuple[str, int], list[tuple[tuple[str, ...], str]]] = {}
        for name, raw in self._raw_operations.items():
            segments = tuple(raw["http"]["requestUri"].split("/"))
            routes.setdefault((raw["http"]["method"], len(segments)), []).append((segments, name))
        return routes


@functools.cache
def load(service: str) -> Model:
    """The newest model of a service (``lambda-microvms``, ``lambda-core``) in the installed botocore.

    Raises:
        errors.DependencyMissingError: botocore is absent, or too old to know the service.
    """
    return load_from(_data_folder(), service=service)


def load_from(folder: str, *, service: str) -> Model:
    """``load``, from botocore's data folder at hand."""
    return Model(service, _read_newest(folder, service, "service-2"))


def read_data(service: str, kind: str) -> dict[str, Any]:
    """The newest data file of a kind (``service-2``, ``paginators-1``) that the installed botocore has of a service.

    Raises:
        errors.DependencyMissingError: botocore is absent, or too old to know the service.
    """
    return _read_newest(_data_folder(), service, kind)


def read_partitions() -> dict[str, Any]:
    """botocore's table of partitions, for the rules of endpoints."""
    return _read_first(os.path.join(_data_folder(), "partitions.json")) or {}


def require_botocore() -> None:
    """See that there is a botocore, before something that needs it is imported.

    Raises:
        errors.DependencyMissingError: there is none.
    """
    _data_folder()


def _data_folder() -> str:
    found = importlib.util.find_spec("botocore")
    if found is None or not found.submodule_search_locations:
        raise errors.DependencyMissingError("botocore is not installed", hint=install_hint())
    return os.path.join(found.submodule_search_locations[0], "data")


def _read_newest(folder: str, service: str, kind: str) -> dict[str, Any]:
    for version in sorted(_entries(os.path.join(folder, service)), reverse=True):
        found = _read_first(os.path.join(folder, service, version, f"{kind}.json"))
        if found is not None:
            return found
    raise errors.DependencyMissingError(
        f"the installed botocore has no model of {service}: it is older than {BOTOCORE_NEEDED}", hint=install_hint()
    )


def _read_first(path: str) -> dict[str, Any] | None:
    """The file, packed or not (some distributions unpack the models); None if there is none."""
    return next((_read(candidate) for candidate in (path + ".gz", path) if os.path.isfile(candidate)), None)


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _read(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        data = file.read()
    try:
        model: dict[str, Any] = json.loads(zlib.decompress(data, _GZIP) if path.endswith(".gz") else data)
    except (zlib.error, ValueError) as error:
        raise errors.DependencyMissingError(f"{path} is damaged: {error}", hint=install_hint()) from error
    return model


def install_hint() -> str:
    """The command that installs the botocore that is needed."""
    return f"pip install 'botocore>={BOTOCORE_NEEDED}'"


def _unsupported(service: str, what: str, feature: str) -> errors.UnsupportedError:
    return errors.UnsupportedError(f"{service}: {what} in botocore's model uses {feature}, which vmnest cannot encode")
