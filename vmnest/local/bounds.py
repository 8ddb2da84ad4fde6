"""What the service demands of parameters beyond its model, in its words."""

from __future__ import annotations

from collections.abc import Mapping

# (operation, path of a number) → the most it may be; from the service's documentation, the model has only the least.
_MOST: Mapping[tuple[str, tuple[str, ...]], int] = {
    ("RunMicrovm", ("idlePolicy", "maxIdleDurationSeconds")): 28800,
}


def find_violations(operation: str, params: Mapping[str, object]) -> list[str]:
    """All violations, to be reported together with the model's (``shapes.parse_request``)."""
    found = []
    for (name, path), most in _MOST.items():
        value = _at(params, path) if name == operation else None
        if isinstance(value, int) and value > most:
            found.append(
                f"Value '{value}' at '{'.'.join(path)}' failed to satisfy constraint: "
                f"Member must have value less than or equal to {most}"
            )
    return found


def _at(params: Mapping[str, object], path: tuple[str, ...]) -> object:
    value: object = params
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
