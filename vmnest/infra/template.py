"""The ``sandbox.yaml`` that ``infra init`` writes: every key with what it is for. Optional parts are comments."""

from __future__ import annotations

import os

from .. import errors, systems
from .spec import DEFAULT_REGION

__all__ = ["render_template", "write_template"]

_TEXT = """\
# Infrastructure of vmnest. Each resource is reused or made: put in the name or the ARN of one that you have, or leave
# that empty, and "vmnest infra up" makes one. "vmnest infra destroy" removes only what it made.

project: vmnest
stack: dev                      # project/stack is the name of all this; "-s NAME" chooses another stack
region: {region}

image:
  name: agent-sandbox-guest     # each stack of an account needs one of its own
  guest_dir: ./guest            # a folder with a Dockerfile; none there: the guest that comes with vmnest
  base_image_arn: ""            # empty: the newest managed image of AWS
  base_image_version: ""        # empty: its newest version
  # memory: 2048                # MiB (512, 1024, 2048, 4096, 8192); at its peak a sandbox has four times that
  # environment:                # variables of everything in the image
  #   LANG: C.UTF-8
  # capabilities: [ALL]         # let root in a sandbox mount, trace, and the like
  # log_group: /vmnest/guest    # CloudWatch log group of the image's builds and sandboxes

role:
  arn: ""                       # empty: a role is made
  name: agent-sandbox-exec      # each stack of an account needs one of its own
  extra_policy_arns: []         # managed policies for what code in a sandbox may do

bucket:
  name: ""                      # empty: a bucket is made

# tags:                         # on everything that is made
#   owner: me

# Sandboxes reach the internet. With this part, those made with "--egress" go through a VPC of yours instead, which
# needs a NAT gateway if they are to reach the internet, too. If all of its values are empty, it counts for nothing.
#
# network:
#   egress:
#     connector_arn: ""           # one to reuse
#     name: agent-sandbox-egress  # of the connector that is made, and of its security group
#     vpc_id: ""                  # empty: the default VPC
#     subnet_ids: []              # ids, or values of the tag Name; empty: all of the VPC
#     security_group_id: ""       # empty: one is made that lets everything out and nothing in
#     operator_role_arn: ""       # empty: a role is made
"""


def render_template(*, region: str | None = None) -> str:
    """The file's text."""
    return _TEXT.format(region=region or DEFAULT_REGION)


def write_template(path: str, *, region: str | None = None, force: bool = False) -> None:
    """Write the file. One that is there is only replaced if ``force`` says so.

    Raises:
        errors.UsageError: there is a file.
        errors.LocalFileError: it cannot be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | systems.CLOEXEC | (os.O_TRUNC | systems.NONBLOCK if force else os.O_EXCL)
    try:
        with open(os.open(path, flags, 0o666), "w", encoding="utf-8") as file:
            file.write(render_template(region=region))
    except FileExistsError:
        raise errors.UsageError(
            f"{path} is there already", hint="Name another file with -f, or have it replaced with --force."
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise errors.LocalFileError(f"cannot write {path}: {reason}") from error
