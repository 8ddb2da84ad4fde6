"""Infrastructure: what stands, what it offers to sandboxes, and what would change."""

from __future__ import annotations

from ...ops import infra, offers
from . import attendance, hostpaths
from .tool import Tool

__all__ = ["TOOLS"]


def infra_outputs(
    *,
    setup_file: str | None = None,
    project: str | None = None,
    stack: str | None = None,
    local: bool | None = None,
) -> dict[str, object]:
    """Show the image, role, region and egress connector that sandboxes are made with: no need to pass them on.

    Args:
        setup_file: Those of this sandbox.yaml.
        project: Those of this project.
        stack: Those of this stack.
        local: true: here; false: AWS. Best left out.

    Returns:
        ready; image_arn, role_arn and egress_connector_arn as {value, source}; region, project, stack.
    """
    return offers.show_offers(files=_files(setup_file), project=project, stack=stack, local=local)


def infra_list() -> dict[str, object]:
    """List all stacks of infrastructure that are up, with what each offers.

    Returns:
        stacks, each with its outputs; count.
    """
    return infra.infra_list()


def infra_preview(
    *,
    setup_file: str | None = None,
    stack: str | None = None,
    local: bool | None = None,
) -> dict[str, object]:
    """Show what the command `vmnest infra up` would do, and why. Changes nothing.

    Args:
        setup_file: A sandbox.yaml; by default the one here.
        stack: The stack to choose.
        local: true: here; false: AWS. Best left out.

    Returns:
        stacks: of each has_changes, steps, notes.
    """
    return infra.preview_infra(
        files=_files(setup_file),
        stack=stack,
        local=local,
        timeout=attendance.MOST_SECONDS,
        check_folder=hostpaths.allow,  # a file that is allowed may name any
    )


def _files(setup_file: str | None) -> list[str] | None:
    """What it says would be shown in errors: it has to be where this server may read."""
    return None if setup_file is None else [hostpaths.allow(setup_file)]


TOOLS = (
    Tool(infra_outputs, title="Show what sandboxes start from", reads=True),
    Tool(infra_list, title="List stacks", reads=True),
    Tool(infra_preview, title="Preview infrastructure", reads=True),
)
