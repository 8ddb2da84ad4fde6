"""The error tree: one class, one meaning, one code."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest

from vmnest import errors
from vmnest.agent.results import ExecResult

# Other modules have subclasses for their own use, which no caller is meant to know.
CLASSES = [each for each in dict.fromkeys(errors.iter_classes()) if each.__module__.startswith(f"{errors.__name__}.")]
# A machine that reads the code needs no difference here; the classes differ for Python's sake.
SHARED_CODES = {
    "timed_out": {errors.WaitTimeoutError, errors.CommandTimedOutError},
    "not_found": {errors.NotFoundError, errors.ResourceNotFoundError},
}


def by_name(error_class: type[errors.VmnestError]) -> str:
    return error_class.__name__


def test_a_code_belongs_to_one_class_but_for_those_documented() -> None:
    users: dict[str, set[type[errors.VmnestError]]] = {}
    for error_class in CLASSES:
        users.setdefault(error_class.code, set()).add(error_class)
    assert {code: classes for code, classes in users.items() if len(classes) > 1} == SHARED_CODES


@pytest.mark.parametrize("error_class", CLASSES, ids=by_name)
def test_every_class_says_what_it_means(error_class: type[errors.VmnestError]) -> None:
    assert "code" in vars(error_class)
    assert error_class.code.isidentifier()
    assert error_class.code.islower()
    assert inspect.getdoc(error_class) != inspect.getdoc(error_class.__mro__[1])
    assert error_class.__name__.endswith("Error")


def make(error_class: type[errors.VmnestError]) -> errors.VmnestError:
    wanted = inspect.signature(error_class.__init__).parameters
    extras = {
        "result": ExecResult(3, b"out", b""),
        "operation": "GetMicrovm",
        "status": 400,
        "request_id": "id-1",
        "retry_after": 2.0,
    }
    chosen: dict[str, Any] = {name: value for name, value in extras.items() if name in wanted}
    return error_class("it failed", hint="Look.", **chosen)


@pytest.mark.parametrize("error_class", CLASSES, ids=by_name)
def test_every_error_travels_between_processes(error_class: type[errors.VmnestError]) -> None:
    # A pool whose worker raises one that cannot be unpickled waits for ever.
    error = make(error_class)
    error.details["more"] = 1
    error.retryable = True
    for arrived in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(arrived) is error_class
        assert str(arrived) == "it failed"
        assert vars(arrived) == vars(error)
        assert arrived.to_wire() == error.to_wire()


@pytest.mark.parametrize("error_class", CLASSES, ids=by_name)
def test_every_exit_status_is_one_of_the_manuals(error_class: type[errors.VmnestError]) -> None:
    statuses = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert error_class.exit_status in statuses


def test_every_error_class_of_the_module_is_in_the_tree() -> None:
    members = {member for _, member in inspect.getmembers(errors, inspect.isclass) if issubclass(member, Exception)}
    assert members == set(CLASSES)
