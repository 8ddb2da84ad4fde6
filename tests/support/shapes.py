"""A service's model as botocore reads it, and random values that fit the model, made from it."""

from __future__ import annotations

import functools
from datetime import datetime, timedelta, timezone
from typing import Any

import botocore.loaders
import botocore.model
from hypothesis import strategies as st

from vmnest.aws import constraints, shapes

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MOMENTS = st.integers(0, 4_000_000_000_000).map(lambda milliseconds: EPOCH + timedelta(milliseconds=milliseconds))
SPAN = 12  # how much longer than its minimum a text or list is made
# Of the classes of letters in the patterns that Python cannot read (\p{L}, \p{Z}, \p{N}), and none that they exclude.
PLAIN = st.characters(codec="utf-8", categories=["Lu", "Ll", "Nd", "Zs"])


@functools.cache
def botocore_service(name: str) -> botocore.model.ServiceModel:
    """The model of a service by botocore's own reader."""
    return botocore.model.ServiceModel(botocore.loaders.Loader().load_service_model(name, "service-2"), name)


def error_names(service: str) -> set[str]:
    """The errors of all operations of a service."""
    found = botocore_service(service)
    return {error.name for name in found.operation_names for error in found.operation_model(name).error_shapes}


@functools.cache
def values(shape: shapes.Shape) -> st.SearchStrategy[Any]:
    """Values that satisfy every constraint of the shape."""
    if shape.kind == "structure":
        return structures(shape)
    if shape.kind == "list":
        low = shape.minimum or 0
        return st.lists(values(shape.element), min_size=low, max_size=min(low + 3, shape.maximum or low + 3))
    if shape.kind == "map":
        low = shape.minimum or 0
        return st.dictionaries(values(shape.key), values(shape.value), min_size=low, max_size=low + 3)
    if shape.kind == "timestamp":
        return MOMENTS
    if shape.kind == "boolean":
        return st.booleans()
    if shape.kind in {"integer", "long"}:
        return st.integers(
            -(2**31) if shape.minimum is None else shape.minimum, 2**31 - 1 if shape.maximum is None else shape.maximum
        )
    return texts(shape)


def structures(shape: shapes.Shape) -> st.SearchStrategy[dict[str, Any]]:
    """The optional members now and then; of a union exactly one."""
    members = {name: values(member.shape) for name, member in shape.members.items()}
    if shape.is_union:
        return st.one_of([st.fixed_dictionaries({name: made}) for name, made in members.items()])
    required = {name: made for name, made in members.items() if name in shape.required}
    optional = {name: made for name, made in members.items() if name not in shape.required}
    return st.fixed_dictionaries(required, optional=optional)


def texts(shape: shapes.Shape) -> st.SearchStrategy[str]:
    """Strings of the shape."""
    if shape.choices:
        return st.sampled_from(shape.choices)
    low = shape.minimum or 0
    high = min(low + SPAN, shape.maximum or low + SPAN)
    if shape.pattern is None:
        return st.text(st.characters(codec="utf-8"), min_size=low, max_size=high)
    compiled = constraints.compile_java(shape.pattern)
    if compiled is None:
        return st.text(PLAIN, min_size=low, max_size=high)
    found = st.from_regex(compiled, fullmatch=True)
    return found.filter(lambda text: low <= len(text) <= (shape.maximum or len(text)))
