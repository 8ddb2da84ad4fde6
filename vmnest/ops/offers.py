"""What a new sandbox would start from, and who says so: image, role, region, connector, each with its source."""

from __future__ import annotations

from .. import errors, settings
from .. import target as targets
from . import works

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..infra.state import StackState

__all__ = ["show_offers"]

ENVIRONMENT, INFRASTRUCTURE, BUILT_IN, UNSET = "env", "infra", "default", "unset"
# As ``infra.outputs`` calls them, which is loaded only when it is asked.
_IMAGE, _ROLE, _CONNECTOR = "image_arn", "execution_role_arn", "egress_network_connector_arn"


def show_offers(
    *,
    files: Sequence[str] | None = None,
    project: str | None = None,
    stack: str | None = None,
    local: bool | None = None,
) -> dict[str, object]:
    """Show the image, role, region and egress connector that a sandbox is made with if none are named. Asks no service.

    What the environment names comes before what infrastructure offers, as when a sandbox is made. If a stack is chosen,
    it is what that stack offers. ``ready`` says that there is an image; a role is not needed.

    Args:
        files: Choose the stack that these configuration files name.
        project: Choose the stack of this project.
        stack: Choose the stack of this name.
        local: True: on this machine; False: on AWS; by default what AGENT_SANDBOX_TARGET says, else AWS.

    Raises:
        errors.NotFoundError: no such stack is up.
        errors.UsageError: several are.
    """
    environ = settings.environment()
    is_local = settings.is_local(local, environ=environ)
    if files or project is not None or stack is not None:
        chosen = _choose(files, project=project, stack=stack, is_local=is_local, environ=environ)
        return _describe(chosen, _Chosen(chosen), is_local=is_local)
    from ..infra import outputs

    found = outputs.find_stack(is_local=is_local, environ=environ)
    return _describe(found, _Usual(is_local=is_local, environ=environ), is_local=is_local)


def _choose(
    files: Sequence[str] | None,
    *,
    project: str | None,
    stack: str | None,
    is_local: bool,
    environ: Mapping[str, str],
) -> StackState:
    from ..infra import config, state

    kind = settings.TARGET_LOCAL if is_local else settings.TARGET_AWS
    store = state.open_default(environ)
    if files:
        named = config.load(files, stack=stack, environ=environ)
        keys = {state.key_of(each.project, each.stack, is_local=is_local) for each in named}
        up = [each for each in store.all() if each.key in keys]
    else:
        up = [each for each in store.all() if each.target == kind and stack in (None, each.stack)]
    up = [each for each in up if each.outputs and project in (None, each.project)]
    if not up:
        raise errors.NotFoundError(
            "no such stack is up" + (" on this machine" if is_local else " on AWS"),
            hint="vmnest infra output --all lists those that are; vmnest infra up makes one.",
        )
    if len(up) > 1:
        raise errors.UsageError(
            f"several stacks are meant: {', '.join(each.label for each in up)}",
            hint="Name the project and the stack.",
        )
    return up[0]


class _Chosen:
    """A stack's own."""

    def __init__(self, state: StackState) -> None:
        self._state = state

    def image(self) -> dict[str, object]:
        """The image."""
        return self._output(_IMAGE)

    def role(self) -> dict[str, object]:
        """The role that code in a sandbox gets."""
        return self._output(_ROLE)

    def connector(self) -> dict[str, object]:
        """The connector of ``egress``."""
        return self._output(_CONNECTOR)

    def region(self) -> str | None:
        """Where all of them are."""
        return works.region_of(self._state)

    def _output(self, name: str) -> dict[str, object]:
        value = self._state.outputs.get(name)
        return _found(value, INFRASTRUCTURE) if value else _found(None, UNSET)


class _Usual:
    """What counts if nothing is named."""

    def __init__(self, *, is_local: bool, environ: Mapping[str, str]) -> None:
        self._is_local = is_local
        self._environ = environ

    def image(self) -> dict[str, object]:
        """The image."""
        from ..wire import names

        found = self._find("image_arn", _IMAGE)
        return _found(names.LOCAL_IMAGE_NAME, BUILT_IN) if self._is_local and found["value"] is None else found

    def role(self) -> dict[str, object]:
        """The role that code in a sandbox gets."""
        from ..sandbox import wiring

        image = self.image()
        found = self._find("execution_role_arn", _ROLE, of_image=str(image["value"] or ""))
        if found["source"] != INFRASTRUCTURE:
            return found
        # As when a sandbox is made: see ``wiring.resolve``.
        is_foreign = image["value"] is not None and not wiring.is_of_one_account(
            str(image["value"]), str(found["value"])
        )
        is_useless = self._is_local and image["source"] != INFRASTRUCTURE
        return _found(None, UNSET) if is_foreign or is_useless else found

    def connector(self) -> dict[str, object]:
        """The connector of ``egress``."""
        return self._find("egress_connector", _CONNECTOR)

    def region(self) -> str | None:
        """Where it would be."""
        image = self.image()
        try:
            arn = str(image["value"]) if image["value"] else None
            return targets.resolve(local=self._is_local, arn=arn, environ=self._environ).region
        except errors.RegionNotFoundError:
            return None

    def _find(self, setting: str, output: str, *, of_image: str | None = None) -> dict[str, object]:
        from ..infra import outputs

        value = targets.configured(setting, is_local=self._is_local, environ=self._environ)
        if value is not None:
            return _found(value, ENVIRONMENT)
        offered = outputs.resolve(output, is_local=self._is_local, environ=self._environ, of_image=of_image or None)
        return _found(None, UNSET) if offered is None else _found(offered.value, INFRASTRUCTURE)


def _found(value: object, source: str) -> dict[str, object]:
    return {"value": value, "source": source}


def _describe(state: StackState | None, offers: _Chosen | _Usual, *, is_local: bool) -> dict[str, object]:
    image = offers.image()
    recorded = {} if state is None else dict(state.outputs)
    return {
        "ready": image["value"] is not None,
        "target": settings.TARGET_LOCAL if is_local else settings.TARGET_AWS,
        "project": None if state is None else state.project,
        "stack": None if state is None else state.stack,
        "region": offers.region(),
        "image_arn": image,
        "role_arn": offers.role(),
        "egress_connector_arn": offers.connector(),
        "build_bucket": recorded.get("build_bucket"),
        "network": {
            "vpc_id": recorded.get("vpc_id"),
            "subnet_ids": recorded.get("subnet_ids", []),
            "security_group_id": recorded.get("security_group_id"),
        },
        "raw_infra_outputs": recorded,
    }
