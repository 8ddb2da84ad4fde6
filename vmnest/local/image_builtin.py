"""The image that nobody built: the agent on this machine's programs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from .._guest.agentd import wire
from ..wire import names
from . import hooks, image_records, image_rules
from .image_records import Image, Version

Wire = Mapping[str, object]


def built_in(created_at: float) -> Image:
    """It, as it was since this local cloud was made."""
    arn = names.image_arn(region=names.LOCAL_REGION, account=names.LOCAL_ACCOUNT, name=names.LOCAL_IMAGE_NAME)
    settings = {
        "description": "The programs of this machine",
        "baseImageArn": image_rules.base_arn(),
        "baseImageVersion": f"{image_rules.BASE_VERSIONS[0]}.0",
        # Members that the model requires, of an image that nobody built.
        "buildRoleArn": f"arn:aws:iam::{names.LOCAL_ACCOUNT}:role/vmnest-local",
        "codeArtifact": {"uri": "s3://vmnest-local/built-in"},
        "egressNetworkConnectors": [],
        "resources": [{"minimumMemoryInMiB": image_rules.DEFAULT_MEMORY_MIB}],
        "hooks": _agent_hooks(),
    }
    version = Version(
        1,
        settings,
        created_at=created_at,
        updated_at=created_at,
        builds=tuple(
            image_records.Build(_fixed_id(f"{arn}/{generation}"), generation, created_at, image_records.SUCCESSFUL)
            for generation in image_records.GENERATIONS
        ),
        state=image_records.SUCCESSFUL,
        status=image_records.ACTIVE,
    )
    return Image(
        names.LOCAL_IMAGE_NAME,
        _fixed_id(arn),
        number=1,
        created_at=created_at,
        updated_at=created_at,
        state=image_records.CREATED,
        last_number=1,
        versions=(version,),
        is_built_in=True,
    )


def _agent_hooks() -> Wire:
    """The agent has all hooks; where one of the runtime is, the service wants ``ready`` too."""
    timeouts = {
        "run": hooks.RUN_SECONDS,
        "resume": hooks.RESUME_SECONDS,
        "suspend": hooks.SUSPEND_SECONDS,
        "terminate": hooks.TERMINATE_SECONDS,
    }
    enabled: dict[str, object] = dict.fromkeys(timeouts, image_rules.ENABLED)
    return {
        "port": wire.HOOK_PORT,
        "microvmImageHooks": {"ready": image_rules.ENABLED, "readyTimeoutInSeconds": 60},
        "microvmHooks": {**enabled, **{f"{name}TimeoutInSeconds": int(value) for name, value in timeouts.items()}},
    }


def _fixed_id(text: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, text))
