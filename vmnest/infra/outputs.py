"""What infrastructure offers to whoever starts a sandbox: image, role, connector. Flag and environment come before it.

Of which stack: the one that ``sandbox.yaml`` (or ``AGENT_SANDBOX_SETUP``) names. Where there is no such file, as for a
script in another folder: the only stack of the target, if there is exactly one. A stack of this machine is never taken
for AWS, nor the reverse.

The record of stacks is read first, and YAML is loaded only if it holds a stack of the target and there is a file that
may name it: without infrastructure, this costs one look for a file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from .. import errors, settings
from . import places, state

__all__ = [
    "BUILD_BUCKET",
    "EGRESS_CONNECTOR",
    "EXECUTION_ROLE",
    "IMAGE",
    "IMAGE_VERSION",
    "REGION",
    "Found",
    "find_stack",
    "resolve",
]

REGION = "region"
IMAGE = "image_arn"
IMAGE_VERSION = "image_version"
EXECUTION_ROLE = "execution_role_arn"
BUILD_BUCKET = "build_bucket"
EGRESS_CONNECTOR = "egress_network_connector_arn"


class Found(NamedTuple):
    """A value, and where it is from: ``output of project/stack``."""

    value: str
    source: str


def resolve(
    name: str,
    *,
    is_local: bool,
    environ: Mapping[str, str] | None = None,
    cwd: str = os.curdir,
    of_image: str | None = None,
) -> Found | None:
    """The output of that name, or None if no infrastructure offers it.

    Args:
        name: ``image_arn``, ``execution_role_arn``, ``egress_network_connector_arn``, ``build_bucket`` or ``region``.
        is_local: Of a stack on this machine.
        environ: The environment; the process's own by default.
        cwd: Where ``sandbox.yaml`` is looked for.
        of_image: If there is exactly one stack with this image, it is the one that counts.

    Raises:
        errors.StateFileError: the record of stacks cannot be used.
        errors.ConfigurationError: ``sandbox.yaml`` cannot be used, or names several stacks that have such an output.
    """
    found = find_stack(is_local=is_local, environ=environ, cwd=cwd, having=name, of_image=of_image)
    return None if found is None else Found(str(_offers(found)[name]), f"output of {found.label}")


def find_stack(
    *,
    is_local: bool,
    environ: Mapping[str, str] | None = None,
    cwd: str = os.curdir,
    having: str | None = None,
    of_image: str | None = None,
) -> state.StackState | None:
    """The recorded stack whose outputs count here, or None; with ``having`` only one that has such an output.

    See ``resolve`` for ``of_image``.

    Raises:
        errors.ConfigurationError: several do.
    """
    environ = settings.environment() if environ is None else environ
    kind = settings.TARGET_LOCAL if is_local else settings.TARGET_AWS
    candidates = [each for each in state.open_default(environ).all() if each.target == kind and each.outputs]
    if not candidates:
        return None
    of_that = [each for each in candidates if of_image is not None and each.outputs.get(IMAGE) == of_image]
    if len(of_that) == 1:
        return of_that[0] if _has(of_that[0], having) else None
    default = places.find_default(environ, cwd=cwd)
    if default is None:
        # Two could both be meant: then none is.
        return candidates[0] if len(candidates) == 1 and _has(candidates[0], having) else None
    from . import config

    named = {each.label for each in config.load([default], environ=environ, cwd=cwd)}
    meant = [each for each in candidates if each.label in named and _has(each, having)]
    if len(meant) > 1:
        what = f"the output {having}" if having else "outputs"
        raise errors.ConfigurationError(
            f"{default} names several stacks with {what}: {', '.join(each.label for each in meant)}",
            hint="Let AGENT_SANDBOX_SETUP name a file with one of them, or give what is needed by an option (--image).",
        )
    return meant[0] if meant else None


def _has(stack: state.StackState, name: str | None) -> bool:
    return name is None or bool(_offers(stack).get(name))


def _offers(stack: state.StackState) -> Mapping[str, state.Output]:
    region = {} if stack.region is None else {"region": stack.region}
    return {**region, **stack.outputs}
