"""Error answers of the control plane."""

import pytest

from vmnest import errors
from vmnest.local import faults


@pytest.mark.parametrize(
    ("fault", "status", "error_type"),
    [
        (faults.validation("m"), 400, "ValidationException"),
        (faults.not_found("m"), 404, "ResourceNotFoundException"),
        (faults.conflict("m"), 409, "ConflictException"),
        (faults.internal(), 500, "InternalServerException"),
        (faults.access_denied("RunMicrovm", "arn"), 403, "AccessDeniedException"),
        (faults.unknown_operation("GET /x"), 404, "UnknownOperationException"),
        (faults.microvm_not_found("m"), 404, "ResourceNotFoundException"),
    ],
    ids=lambda value: getattr(value, "error_type", None),
)
def test_a_fault_knows_its_type_and_status(fault, status, error_type):
    assert (fault.status, fault.error_type) == (status, error_type)
    assert isinstance(fault, errors.VmnestError)


def test_a_missing_vm_is_named():
    assert faults.microvm_not_found("microvm-x").message == "MicroVM not found: microvm-x"
