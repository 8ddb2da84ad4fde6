"""AWS credentials: what they are, and where they come from.

``resolve`` finds the source by botocore's rules. Keys that stand in the environment or in a plain profile are taken
without botocore, which costs 60 ms to import; roles, SSO, processes, web identity, containers and instances go through
botocore's own chain. A source is asked anew for every attempt of a call, so that keys that expire are renewed in time.
"Nothing there" and "there, but it cannot be used" are different errors.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .. import errors
from . import profiles

if TYPE_CHECKING:
    from botocore.credentials import Credentials as BotocoreCredentials


class Secret:
    """A text that does not print: only ``reveal()`` gives it away."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    def __repr__(self) -> str:
        return "[secret]"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format("[secret]", spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


class Credentials(NamedTuple):
    """An access key with its secret; ``expires_at`` is in seconds since the epoch, None for keys without an end."""

    access_key: str
    secret_key: Secret
    token: Secret | None = None
    expires_at: float | None = None


class CredentialSource(Protocol):
    """Where credentials come from."""

    def get(self) -> Credentials:
        """Credentials that are good now.

        Raises:
            errors.CredentialsError: there are none, or the source fails.
        """
        ...


class StaticSource:
    """Keys that do not change."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def get(self) -> Credentials:
        """The keys."""
        return self._credentials


class ChainSource:
    """Botocore's chain of providers, walked on first use; botocore renews what expires. Safe for threads."""

    def __init__(self, profile: str | None = None) -> None:
        self._profile = profile
        self._lock = threading.Lock()
        self._found: BotocoreCredentials | None = None

    def get(self) -> Credentials:
        """The keys as they are now, renewed if they are about to expire."""
        try:
            from botocore import exceptions, session
        except ImportError as error:
            raise errors.DependencyMissingError(
                "these credentials need botocore", hint="Install it: pip install 'botocore>=1.43.35'"
            ) from error
        try:
            with self._lock:
                if self._found is None:
                    self._found = session.Session(profile=self._profile).get_credentials()
                found = self._found
            frozen = None if found is None else found.get_frozen_credentials()
        except (exceptions.BotoCoreError, exceptions.ClientError) as error:
            raise errors.CredentialsBrokenError(
                f"the source of AWS credentials fails: {' '.join(str(error).split())}",
                hint="Log in again (aws sso login), or repair the profile in ~/.aws/config.",
            ) from error
        if frozen is None:
            raise _not_found(self._profile)
        return build(frozen.access_key, frozen.secret_key, token=frozen.token)


def build(
    access_key: str, secret_key: str, *, token: str | None = None, expires_at: float | None = None
) -> Credentials:
    """Credentials from plain texts."""
    return Credentials(access_key, Secret(secret_key), Secret(token) if token else None, expires_at)


def resolve(*, environ: Mapping[str, str], profile: str | None = None) -> CredentialSource:
    """The source of credentials, by botocore's order.

    The environment's keys come first, unless the caller names a ``profile``; then the profile's own; then the chain.
    The chain reads the process's own environment, whatever ``environ`` is.

    Raises:
        errors.CredentialsBrokenError: what comes first is incomplete or unreadable.
        errors.CredentialsNotFoundError: a profile was chosen that no file knows.
    """
    if profile is None and environ.get("AWS_ACCESS_KEY_ID"):
        return StaticSource(_from_environment(environ))
    if profile is None and environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        return ChainSource()
    found = profiles.load(environ=environ, profile=profile)
    if found.is_chosen and not found.exists:
        raise errors.CredentialsNotFoundError(
            f"no profile {found.name!r} in {profiles.path_of('config', environ=environ)} or "
            f"{profiles.path_of('credentials', environ=environ)}",
            hint="Name a profile that exists in AWS_PROFILE, or unset it.",
        )
    section = _plain_keys(found)
    return ChainSource(profile) if section is None else StaticSource(_from_section(section, found.name))


# What botocore asks before the keys of the credentials file, and before those of the config file.
_BEFORE_ALL_KEYS = ("role_arn", "web_identity_token_file", "sso_session", "sso_start_url", "sso_account_id")
_BEFORE_CONFIG_KEYS = ("credential_process", "login_session")


def _plain_keys(found: profiles.Profile) -> Mapping[str, str] | None:
    """The section whose keys botocore would take, or None if another provider comes first."""
    if any(found.get(key) for key in _BEFORE_ALL_KEYS):
        return None
    if found.credentials and found.credentials.get("aws_access_key_id"):
        return found.credentials
    if any(found.get(key) for key in _BEFORE_CONFIG_KEYS):
        return None
    return found.config if found.config and found.config.get("aws_access_key_id") else None


def _from_section(section: Mapping[str, str], name: str) -> Credentials:
    secret = section.get("aws_secret_access_key")
    if not secret:
        raise errors.CredentialsBrokenError(
            f"profile {name!r} has an aws_access_key_id and no aws_secret_access_key",
            hint="Add the key that belongs to it.",
        )
    token = section.get("aws_security_token") or section.get("aws_session_token")
    return build(section["aws_access_key_id"], secret, token=token)


def _from_environment(environ: Mapping[str, str]) -> Credentials:
    secret = environ.get("AWS_SECRET_ACCESS_KEY")
    if not secret:
        raise errors.CredentialsBrokenError(
            "AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not", hint="Set both, or neither."
        )
    token = environ.get("AWS_SECURITY_TOKEN") or environ.get("AWS_SESSION_TOKEN")
    expires_at = _parse_expiration(environ.get("AWS_CREDENTIAL_EXPIRATION", ""))
    return build(environ["AWS_ACCESS_KEY_ID"], secret, token=token, expires_at=expires_at)


def _parse_expiration(text: str) -> float | None:
    if not text:
        return None
    try:
        # Python 3.10 does not know the Z of its own ISO format.
        when = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith(("Z", "z")) else text)
    except ValueError:
        raise errors.CredentialsBrokenError(
            f"AWS_CREDENTIAL_EXPIRATION is no time: {text!r}", hint="Unset it, or set a time like 2026-01-31T12:00:00Z."
        ) from None
    return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()


def _not_found(profile: str | None) -> errors.CredentialsNotFoundError:
    return errors.CredentialsNotFoundError(
        "no AWS credentials: looked at AWS_ACCESS_KEY_ID, web identity, "
        f"profile {profile or 'default'} in ~/.aws/credentials and ~/.aws/config, the container's role, the instance's",
        hint="Run `aws configure`, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use --local.",
    )
