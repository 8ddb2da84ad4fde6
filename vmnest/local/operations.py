"""The operations of the local control plane: parameters in, result out. ``OPERATIONS`` is the list of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .. import deadline
from ..wire import names
from . import (
    account,
    connector_operations,
    connectors,
    faults,
    image_operations,
    image_records,
    images,
    network_connectors,
    options,
    paging,
    records,
    tokens,
    vms,
)

Wire = Mapping[str, object]

MAX_TOKEN_MINUTES = 60
_MOST_STARTED = 1 << 53
_MIB = 2**20


@dataclass(frozen=True)
class Cloud:
    """Everything that operations work on."""

    vms: vms.VMs
    images: images.Images
    tags: account.Tags
    connectors: network_connectors.NetworkConnectors
    seal: tokens.Seal
    clock: deadline.Clock = deadline.SYSTEM_CLOCK


@dataclass(frozen=True)
class Call:
    """One call: its parameters, checked by the model, and the text of the header ``vmnest-local-options``."""

    params: Wire
    local_options: str | None = None


# -- MicroVMs ----------------------------------------------------------------------------------------------------------


def run_microvm(cloud: Cloud, call: Call) -> Wire:
    """RunMicrovm: answers PENDING; the endpoint is there already, and holds requests until the VM runs."""
    params, token, asked = call.params, _text(call.params, "clientToken"), _fingerprint(call)
    # By what was asked for, not by what that means today: the image may have another version by now, or none.
    record = cloud.vms.started_by(token, fingerprint=asked)
    if record is None:
        with cloud.images.to_run(str(params["imageIdentifier"]), _text(params, "imageVersion")) as image:
            record = cloud.vms.run(_spec(cloud, image, call), client_token=token, fingerprint=asked)
    return _describe(cloud, record)


def _fingerprint(call: Call) -> str:
    """Equal for calls that ask for the same, and tells nothing of the payload."""
    asked = {name: value for name, value in call.params.items() if name != "clientToken"}
    return hashlib.sha256(json.dumps([asked, call.local_options], sort_keys=True).encode()).hexdigest()


def _spec(cloud: Cloud, image: images.Runnable, call: Call) -> records.Spec:
    params = call.params
    payload = _text(params, "runHookPayload")
    if payload and not image.has_run_hook:
        raise faults.validation("The run hook must be enabled in the MicroVM image to pass the run hook payload")
    return records.Spec(
        image_arn=image.image_arn,
        image_version=image.image_version,
        execution_role_arn=_text(params, "executionRoleArn"),
        idle_policy=_mapping(params, "idlePolicy"),
        max_seconds=_number(params, "maximumDurationInSeconds", names.LONGEST_LIFE_SECONDS),
        ingress=connectors.check_ingress(_texts(params, "ingressNetworkConnectors")),
        egress=connectors.check_egress(
            _texts(params, "egressNetworkConnectors") or image.egress, state_of=cloud.connectors.state_of
        ),
        kms_key=_text(params, "kmsKeyIdentifier"),
        logging=_mapping(params, "logging"),
        payload=payload,
        options=options.parse_options(call.local_options, memory_mib=image.memory_mib),
        built=image.built,
    )


def get_microvm(cloud: Cloud, call: Call) -> Wire:
    """GetMicrovm."""
    return _describe(cloud, _named(cloud, call))


def list_microvms(cloud: Cloud, call: Call) -> Wire:
    """ListMicrovms, ended ones included; the latest first, since those are what most callers look for.

    One that is started between two pages is on neither.
    """
    image, label = call.params.get("imageIdentifier"), _text(call.params, "imageVersion")
    version = None if label is None else f"{image_records.parse_number(label)}.0"
    found = [
        record
        for record in reversed(cloud.vms.all())
        if image in {None, record.spec.image_arn} and version in {None, record.spec.image_version}
    ]
    chosen, token = paging.page(found, call.params, key=lambda record: _MOST_STARTED - record.number)
    return {"items": [_summarize(record) for record in chosen], "nextToken": token}


def suspend_microvm(cloud: Cloud, call: Call) -> Wire:
    """SuspendMicrovm: begins; fine for a VM that is suspended."""
    cloud.vms.suspend(_named(cloud, call))
    return {}


def resume_microvm(cloud: Cloud, call: Call) -> Wire:
    """ResumeMicrovm: begins; fine for a VM that runs."""
    cloud.vms.resume(_named(cloud, call))
    return {}


def terminate_microvm(cloud: Cloud, call: Call) -> Wire:
    """TerminateMicrovm; fine for a VM that has ended."""
    cloud.vms.terminate(_named(cloud, call))
    return {}


def create_auth_token(cloud: Cloud, call: Call) -> Wire:
    """CreateMicrovmAuthToken."""
    record = _named(cloud, call)
    ports = [_port_range(item) for item in _items(call.params, "allowedPorts")]
    return _mint(cloud, call, tokens.Grant(record.microvm_id, ports=ports, expires_at=0))


def create_shell_token(cloud: Cloud, call: Call) -> Wire:
    """CreateMicrovmShellAuthToken."""
    record = _named(cloud, call)
    if not connectors.admits_shell(record.spec.ingress):
        raise faults.validation(
            "Shell access requires SHELL_INGRESS network connector to be configured on the MicroVM."
        )
    return _mint(cloud, call, tokens.Grant(record.microvm_id, ports=(), expires_at=0, for_shell=True))


def _named(cloud: Cloud, call: Call) -> records.Record:
    return cloud.vms.get(str(call.params["microvmIdentifier"]))


def _summarize(record: records.Record) -> dict[str, object]:
    return {
        "microvmId": record.microvm_id,
        "state": record.state,
        "imageArn": record.spec.image_arn,
        "imageVersion": record.spec.image_version,
        "startedAt": record.started_at,
    }


def _describe(cloud: Cloud, record: records.Record) -> Wire:
    spec = record.spec
    with record.changed:
        return {
            **_summarize(record),
            "endpoint": record.endpoint,
            "executionRoleArn": spec.execution_role_arn,
            "idlePolicy": spec.idle_policy,
            "maximumDurationInSeconds": spec.max_seconds,
            "terminatedAt": record.terminated_at,
            "stateReason": record.state_reason if record.is_ended else None,
            "terminationReasonCode": None,
            "kmsKeyIdentifier": spec.kms_key,
            "ingressNetworkConnectors": list(spec.ingress),
            "egressNetworkConnectors": list(spec.egress),
            names.LOCAL_DETAILS_MEMBER: {
                **spec.options.to_wire(),
                "disk": cloud.vms.disk_bytes // _MIB,
                "isolation": cloud.vms.driver.isolation,
                "driver": cloud.vms.driver.name,
                "enforced": None,
                **(record.machine.facts if record.machine is not None else {}),
                **({"egress_refused": list(record.gate.refusals)} if record.gate is not None else {}),
            },
        }


def _mint(cloud: Cloud, call: Call, grant: tokens.Grant) -> Wire:
    minutes = _number(call.params, "expirationInMinutes", 0)
    if minutes > MAX_TOKEN_MINUTES:
        raise faults.validation(f"ExpirationMinutes {minutes} exceeded max allowed of {MAX_TOKEN_MINUTES}.")
    if cloud.vms.get(grant.microvm_id).state in names.ENDED_STATES:
        raise faults.microvm_ended(grant.microvm_id)
    dated = tokens.Grant(
        grant.microvm_id, ports=grant.ports, expires_at=cloud.clock.time() + 60 * minutes, for_shell=grant.for_shell
    )
    return {"authToken": {names.PROXY_AUTH_HEADER: cloud.seal.make(dated)}}


def _port_range(item: Wire) -> tokens.PortRange:
    if "allPorts" in item:
        return tokens.ALL_PORTS
    bounds = _mapping(item, "range")
    if bounds is None:
        port = _number(item, "port", 0)
        return port, port
    low, high = _number(bounds, "startPort", 0), _number(bounds, "endPort", 0)
    if low > high:
        raise faults.validation(f"startPort {low} must not be greater than endPort {high}.")
    return low, high


# -- images, connectors and tags ---------------------------------------------------------------------------------------


def _on_images(operation: image_operations.Operation) -> Operation:
    return lambda cloud, call: operation(cloud.images, call.params)


def _on_builds(operation: image_operations.BuildOperation) -> Operation:
    return lambda cloud, call: operation(cloud.images, call.params, call.local_options)


def _on_connectors(operation: connector_operations.Operation) -> Operation:
    return lambda cloud, call: operation(cloud.connectors, cloud.tags, call.params)


def _tagged(cloud: Cloud, call: Call) -> str:
    arn = str(call.params["Resource"])
    if cloud.images.find(arn) is None and cloud.connectors.state_of(arn) is None:
        raise faults.not_found(f"Resource not found: {arn}")
    return arn


def tag_resource(cloud: Cloud, call: Call) -> Wire:
    """TagResource."""
    tags = _mapping(call.params, "Tags") or {}
    cloud.tags.add(_tagged(cloud, call), {key: str(value) for key, value in tags.items()})
    return {}


def untag_resource(cloud: Cloud, call: Call) -> Wire:
    """UntagResource."""
    cloud.tags.remove(_tagged(cloud, call), _texts(call.params, "TagKeys"))
    return {}


def list_tags(cloud: Cloud, call: Call) -> Wire:
    """ListTags."""
    return {"Tags": cloud.tags.of(_tagged(cloud, call))}


Operation = Callable[[Cloud, Call], Wire]

OPERATIONS: Mapping[str, Operation] = {
    "RunMicrovm": run_microvm,
    "GetMicrovm": get_microvm,
    "ListMicrovms": list_microvms,
    "SuspendMicrovm": suspend_microvm,
    "ResumeMicrovm": resume_microvm,
    "TerminateMicrovm": terminate_microvm,
    "CreateMicrovmAuthToken": create_auth_token,
    "CreateMicrovmShellAuthToken": create_shell_token,
    **{name: _on_images(operation) for name, operation in image_operations.OPERATIONS.items()},
    **{name: _on_builds(operation) for name, operation in image_operations.BUILD_OPERATIONS.items()},
    **{name: _on_connectors(operation) for name, operation in connector_operations.OPERATIONS.items()},
    "TagResource": tag_resource,
    "UntagResource": untag_resource,
    "ListTags": list_tags,
}


# -- parameters: their types were checked against the model ------------------------------------------------------------


def _text(params: Wire, name: str) -> str | None:
    value = params.get(name)
    return value if isinstance(value, str) else None


def _number(params: Wire, name: str, default: int) -> int:
    value = params.get(name)
    return value if isinstance(value, int) else default


def _mapping(params: Wire, name: str) -> Wire | None:
    value = params.get(name)
    return value if isinstance(value, Mapping) else None


def _items(params: Wire, name: str) -> list[Wire]:
    value = params.get(name)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, Sequence) else []


def _texts(params: Wire, name: str) -> list[str]:
    value = params.get(name)
    return [str(item) for item in value] if isinstance(value, (list, tuple)) else []
