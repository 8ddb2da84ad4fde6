"""Where AWS credentials come from.

``resolve`` finds the source by botocore's rules. Keys that stand in the environment or in a plain profile are taken
without botocore, which costs 60 ms to import; roles, SSO, processes, web identity, containers and instances go through
botocore's own chain (``chain``). A source is asked anew for every attempt of a call, so that keys that expire are
renewed in time, and keys that were rotated on the disk are read again. "Nothing there" and "there, but it cannot be
used" are different errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from .. import errors, settings
from ..deadline import SYSTEM_CLOCK, Clock
from . import profiles
from .credentials import Credentials, Standing, StaticSource, build, check

if TYPE_CHECKING:
    from .chain import ChainSource

__all__ = ["ConfiguredSource", "resolve", "shared"]


def resolve(
    *, environ: Mapping[str, str], profile: str | None = None, region: str | None = None, is_hurried: bool = False
) -> ConfiguredSource:
    """The source of credentials, by botocore's order.

    The environment's keys come first, unless the caller names a ``profile``; then the profile's own; then the chain.
    The chain reads the process's own environment, whatever ``environ`` is. ``region`` is where roles are assumed if
    neither environment nor profile says. ``is_hurried`` is for who only wants to know how things stand: nothing is
    waited for as long, and nobody is asked for an MFA code.

    Raises:
        errors.CredentialsBrokenError: what comes first is incomplete or unreadable.
        errors.CredentialsNotFoundError: a profile was chosen that no file knows.
    """
    return ConfiguredSource(environ=environ, profile=profile, region=region, is_hurried=is_hurried)


_SHARED: dict[str | None, ConfiguredSource] = {}


def shared(*, environ: Mapping[str, str], region: str | None = None) -> ConfiguredSource:
    """``resolve`` for the process's own environment: one source for all sandboxes, so that keys are got once."""
    if environ is not settings.environment():
        return resolve(environ=environ, region=region)
    found = _SHARED.get(region)
    return found if found is not None else _SHARED.setdefault(region, resolve(environ=environ, region=region))


class EnvironmentSource:
    """The keys in the environment, read anew each time: whoever changes them means it."""

    def __init__(self, environ: Mapping[str, str], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._environ = environ
        self._clock = clock

    def get(self) -> Credentials:
        """The keys; broken if half of them is missing, or if they say themselves that they have ended."""
        found = _from_environment(self._environ)
        if found.expires_at is not None and found.expires_at <= self._clock.time():
            raise errors.CredentialsBrokenError(
                f"the keys in AWS_ACCESS_KEY_ID have ended: {self._environ['AWS_CREDENTIAL_EXPIRATION']}",
                hint="Export new ones with their AWS_CREDENTIAL_EXPIRATION, or unset them to use a profile.",
            )
        return found

    def renew(self, refused: Credentials) -> bool:
        """There are others if somebody has changed them."""
        return self.get() != refused


class ConfiguredSource:
    """Whatever environment and files say at the moment: a file that was written since is read again. Safe for threads.

    A long-running program (the MCP server, a library's user) outlives keys that something else rotates on the disk.
    """

    def __init__(
        self, *, environ: Mapping[str, str], profile: str | None, region: str | None, is_hurried: bool = False
    ) -> None:
        self._environ = environ
        self._is_hurried = is_hurried
        self._profile = profile
        self._region = region
        # One attribute, so that threads see both halves or none. Two that find it old both choose, which is no harm.
        self._chosen = self._stamp(), self.choose()

    def get(self) -> Credentials:
        """The keys as they are now."""
        stamp, source = self._chosen
        now = self._stamp()
        if now != stamp:
            source = self.choose()
            self._chosen = now, source
        return check(source.get())

    def look(self) -> Standing:
        """The keys as they are now, the kind of their source, and when they end; errors as of ``get``."""
        found, source = self.get(), self._chosen[1]
        if isinstance(source, EnvironmentSource):
            return Standing(found, "environment", found.expires_at)
        return Standing(found, "profile") if isinstance(source, StaticSource) else source.look(found)

    def renew(self, refused: Credentials) -> bool:
        """Others may have come while the refused ones were on their way."""
        return self.get() != refused or self._chosen[1].renew(refused)

    def choose(self) -> EnvironmentSource | StaticSource | ChainSource:
        """The source that comes first."""
        environ, profile = self._environ, self._profile
        if profile is None and environ.get("AWS_ACCESS_KEY_ID"):
            return EnvironmentSource(environ)
        if profile is None and environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
            return self._chain()
        found = profiles.load(environ=environ, profile=profile)
        if found.is_chosen and not found.exists:
            raise errors.CredentialsNotFoundError(
                f"no profile {found.name!r} in {profiles.path_of('config', environ=environ)} or "
                f"{profiles.path_of('credentials', environ=environ)}",
                hint="Name a profile that exists in AWS_PROFILE, or unset it.",
            )
        kind = _plain_keys(found)
        if kind is None:
            return self._chain()
        section = found.credentials if kind == "credentials" else found.config
        return StaticSource(_from_section(section or {}, found.name, path=profiles.path_of(kind, environ=environ)))

    def _chain(self) -> ChainSource:
        from .chain import ChainSource

        return ChainSource(self._profile, environ=self._environ, region=self._region, is_hurried=self._is_hurried)

    def _stamp(self) -> tuple[object, ...]:
        """What changes when there may be something new to choose."""
        # For each call of each service: the values of the environment's other variables are not even decoded.
        variables = [(name, self._environ.get(name)) for name in self._environ if name.startswith("AWS_")]
        paths = (profiles.path_of(kind, environ=self._environ) for kind in ("config", "credentials"))
        return (*variables, *map(profiles.stamp_of, paths))


# What botocore asks before the keys of the credentials file, and before those of the config file.
_BEFORE_ALL_KEYS = ("role_arn", "web_identity_token_file", "sso_session", "sso_start_url", "sso_account_id")
_BEFORE_CONFIG_KEYS = ("credential_process", "login_session")


def _plain_keys(found: profiles.Profile) -> str | None:
    """The file whose keys botocore would take, or None if another provider comes first."""
    if any(found.get(key) for key in _BEFORE_ALL_KEYS):
        return None
    if found.credentials and found.credentials.get("aws_access_key_id"):
        return "credentials"
    if any(found.get(key) for key in _BEFORE_CONFIG_KEYS):
        return None
    return "config" if found.config and found.config.get("aws_access_key_id") else None


def _from_section(section: Mapping[str, str], name: str, *, path: str) -> Credentials:
    secret = section.get("aws_secret_access_key")
    if not secret:
        raise errors.CredentialsBrokenError(
            f"profile {name!r} has an aws_access_key_id and no aws_secret_access_key in {path}",
            hint="Add the key that belongs to it.",
        )
    token = section.get("aws_security_token") or section.get("aws_session_token")
    return build(section["aws_access_key_id"], secret, token=token, origin=f"profile {name!r} in {path}")


def _from_environment(environ: Mapping[str, str]) -> Credentials:
    secret = environ.get("AWS_SECRET_ACCESS_KEY")
    if not secret:
        raise errors.CredentialsBrokenError(
            "AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not", hint="Set both, or neither."
        )
    token = environ.get("AWS_SECURITY_TOKEN") or environ.get("AWS_SESSION_TOKEN")
    expires_at = _parse_expiration(environ.get("AWS_CREDENTIAL_EXPIRATION", ""))
    return build(environ["AWS_ACCESS_KEY_ID"], secret, token=token, expires_at=expires_at, origin="AWS_ACCESS_KEY_ID")


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
