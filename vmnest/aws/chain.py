"""botocore's chain of credential providers, with what it lacks for a command line and a long-running library.

The providers are botocore's own, and so is the renewal of keys that expire. Around them: the instance's metadata is
never asked through a proxy; the session of a role is kept in the AWS CLI's own cache, so that not each command asks
AWS, or for an MFA code; the calls that they make have short timeouts; whatever they raise, and botocore's providers
raise anything, becomes an error that says what to do; a failure is remembered for a moment, so that a crowd of threads
waits once; and a child of ``fork`` starts afresh.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import errors
from ..deadline import SYSTEM_CLOCK, Clock
from . import instance, model, profiles
from .credentials import Credentials, Standing, build

if TYPE_CHECKING:
    from botocore.credentials import Credentials as BotocoreCredentials
    from botocore.session import Session

REMEMBER_FAILURE_SECONDS = 5.0
_TEXT_CHARACTERS = 300

# What botocore's providers let through of what files, programs and servers make them raise: no such file, no JSON, a
# member that is missing, keys that have ended when they are new.
_RAISED_BY_CHANCE = (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError)


class Patience(NamedTuple):
    """How long is waited for what gives out keys, in seconds.

    Attributes:
        connect, read, attempts: Of botocore's own calls (STS, SSO).
        process: For a ``credential_process``.
        metadata: For each request to the instance's metadata, at most; None for what is configured.
        asks: A person at the terminal may be asked, for an MFA code or by the process.
    """

    connect: float
    read: float
    attempts: int
    process: float
    metadata: float | None
    asks: bool


USUAL = Patience(connect=5.0, read=15.0, attempts=3, process=300.0, metadata=None, asks=True)
# For who only wants to know how things stand.
HURRIED = Patience(connect=2.0, read=3.0, attempts=1, process=4.0, metadata=1.0, asks=False)

# botocore's names of its providers: in one word, where we have another, and in several.
_KINDS = {
    "assume-role-with-web-identity": "web-identity",
    "custom-process": "process",
    "container-role": "container",
    "iam-role": "instance",
    "shared-credentials-file": "profile",
    "config-file": "profile",
}
_ORIGINS = {
    "assume-role": "the role of profile {profile}",
    "assume-role-with-web-identity": "the web identity in AWS_WEB_IDENTITY_TOKEN_FILE or profile {profile}",
    "sso": "the SSO login of profile {profile}",
    "login": "the login of profile {profile}",
    "custom-process": "the credential_process of profile {profile}",
    "container-role": "the container's role",
    "iam-role": "the instance's role",
    "shared-credentials-file": "profile {profile} in the credentials file",
    "config-file": "profile {profile} in the config file",
}


class ChainSource:
    """Keys from botocore's chain, found on first use and renewed before they expire. Safe for threads, and after fork.

    Args:
        profile: The profile that the caller named, or None for the one that the environment chooses.
        environ: For messages, and for what this module adds; botocore reads the process's own environment.
        region: Where STS is asked if neither environment nor profile says.
        clock: Tells how long a failure is remembered.
        is_hurried: See ``HURRIED``.
    """

    def __init__(
        self,
        profile: str | None = None,
        *,
        environ: Mapping[str, str],
        region: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
        is_hurried: bool = False,
    ) -> None:
        self._is_hurried = is_hurried
        self._profile = profile
        self._environ = environ
        self._region = region
        self._clock = clock
        self._state = _State()

    def get(self) -> Credentials:
        """The keys as they are now, renewed if they are about to expire."""
        state = self._own_state()
        with state.lock:
            if state.failure is not None and self._clock.monotonic() < state.failure.until:
                raise state.failure.again()
            state.failure = None
            try:
                return self._get(state)
            except errors.CredentialsError as error:
                until = self._clock.monotonic() + REMEMBER_FAILURE_SECONDS
                state.failure = _Failure(type(error), error.message, error.hint, until)
                raise

    def look(self, found: Credentials) -> Standing:
        """What is known of these keys, which ``get`` returned a moment ago."""
        theirs = self._own_state().found
        method = "" if theirs is None else str(theirs.method)
        # Those whose source can be asked again have this method, and no others.
        return Standing(
            found,
            _KINDS.get(method, method),
            _find_end(theirs, now=self._clock.time()),
            is_renewed=hasattr(theirs, "refresh_needed"),
        )

    def renew(self, refused: Credentials) -> bool:
        """Walk the chain again, past the AWS CLI's cache: a session in it may have been revoked."""
        state = self._own_state()
        with state.lock:
            # Of a crowd whose keys were refused, the first one does it.
            if state.last == refused:
                state.found, state.is_cache_stale = None, True
        return self.get() != refused

    def _get(self, state: _State) -> Credentials:
        try:
            from botocore import exceptions, parsers
        except ImportError as error:
            raise errors.DependencyMissingError(
                "these credentials need botocore", hint=f"Install it: {model.install_hint()}"
            ) from error
        ours = (exceptions.BotoCoreError, exceptions.ClientError, parsers.ResponseParserError)
        try:
            if state.found is None:
                made, metadata = _prepare(
                    self._profile,
                    environ=self._environ,
                    region=self._region,
                    is_cache_stale=state.is_cache_stale,
                    patience=HURRIED if self._is_hurried else USUAL,
                )
                state.found = made.get_credentials()
                if state.found is None:
                    raise not_found(environ=self._environ, profile=self._profile, instance=metadata.outcome)
            frozen = state.found.get_frozen_credentials()
        except (*ours, *_RAISED_BY_CHANCE) as error:
            raise self._broken(error) from error
        parts = (frozen.access_key, frozen.secret_key, frozen.token or "")
        if not all(parts[:2]) or not all(isinstance(part, str) for part in parts):
            raise errors.CredentialsBrokenError(
                f"{self._origin(state.found)} gives no keys", hint="Repair it, or choose another profile."
            )
        state.last = build(
            frozen.access_key, frozen.secret_key, token=frozen.token or None, origin=self._origin(state.found)
        )
        return state.last

    def _own_state(self) -> _State:
        # In a child of fork the lock may be held by a thread that is not there.
        if self._state.pid != os.getpid():
            self._state = _State()
        return self._state

    def _origin(self, found: BotocoreCredentials) -> str:
        return _ORIGINS.get(found.method, str(found.method)).format(profile=self._name)

    @property
    def _name(self) -> str:
        return profiles.chosen_name(environ=self._environ, profile=self._profile) or profiles.DEFAULT

    def _broken(self, error: Exception) -> errors.CredentialsBrokenError:
        found = profiles.load(environ=self._environ, profile=self._profile)
        text, hint = explain(error, profile=self._name, is_sso=any(map(found.get, ("sso_session", "sso_start_url"))))
        return errors.CredentialsBrokenError(f"the source of AWS credentials fails: {text}", hint=hint)


_LONGEST_SESSION_SECONDS = 2**20  # twelve days: more than any source gives


def _find_end(found: Any, *, now: float) -> float | None:
    """When keys of botocore's end, to the second; None if they do not, or not for long.

    It keeps the moment to itself, and answers one question: is less left than this? So that is asked.
    """
    if not hasattr(found, "refresh_needed") or not found.refresh_needed(_LONGEST_SESSION_SECONDS):
        return None
    low, high = 0, _LONGEST_SESSION_SECONDS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if found.refresh_needed(middle) else (middle, high)
    return now + low


class _Failure(NamedTuple):
    kind: type[errors.CredentialsError]
    message: str
    hint: str | None
    until: float

    def again(self) -> errors.CredentialsError:
        """The same error anew: one object raised by several threads would collect all their tracebacks."""
        return self.kind(self.message, hint=self.hint)


class _State:
    """What belongs to one process. ``lock`` guards the rest."""

    __slots__ = ("failure", "found", "is_cache_stale", "last", "lock", "pid")

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.found: BotocoreCredentials | None = None
        self.failure: _Failure | None = None
        self.last: Credentials | None = None
        self.is_cache_stale = False


# -- the chain ---------------------------------------------------------------------------------------------------------


def _prepare(
    profile: str | None, *, environ: Mapping[str, str], region: str | None, is_cache_stale: bool, patience: Patience
) -> tuple[Session, instance.InstanceMetadata]:
    """A session whose chain is as described above; nothing is asked yet."""
    from botocore import session
    from botocore.config import Config
    from botocore.credentials import InstanceMetadataProvider

    made = session.Session(profile=profile)
    made.set_default_client_config(
        Config(
            connect_timeout=patience.connect,
            read_timeout=patience.read,
            retries={"mode": "standard", "total_max_attempts": patience.attempts},
        )
    )
    if region and not made.get_config_variable("region"):
        # Of the two variables for it, botocore knows AWS_DEFAULT_REGION only; and a sandbox has its own.
        made.set_config_variable("region", region)
    metadata = _instance_metadata(made, environ, patience=patience)
    cache = _RoleCache(os.path.join("~", ".aws"), is_stale=is_cache_stale)
    builder = _ProfileProviders(made, cache, patience=patience)
    name = made.get_config_variable("profile") or profiles.DEFAULT
    ours = {each.METHOD: each for each in builder.providers(name, disable_env_vars=profile is not None)}
    ours["assume-role"] = _assume_role_provider(
        made, name, cache=cache, builder=builder, metadata=metadata, patience=patience
    )
    ours["iam-role"] = InstanceMetadataProvider(iam_role_fetcher=metadata)
    resolver = made.get_component("credential_provider")
    resolver.providers = [ours.get(provider.METHOD, provider) for provider in resolver.providers]
    return made, metadata


def _instance_metadata(made: Session, environ: Mapping[str, str], *, patience: Patience) -> instance.InstanceMetadata:
    mode = str(made.get_config_variable("ec2_metadata_service_endpoint_mode") or "").lower()
    is_ipv6 = mode == "ipv6" or bool(made.get_config_variable("imds_use_ipv6"))
    default = instance.DEFAULT_URL_IPV6 if is_ipv6 else instance.DEFAULT_URL
    timeout, attempts = _number(made, "metadata_service_timeout"), _number(made, "metadata_service_num_attempts")
    return instance.InstanceMetadata(
        url=made.get_config_variable("ec2_metadata_service_endpoint") or default,
        is_enabled=environ.get("AWS_EC2_METADATA_DISABLED", "").lower() != "true",
        timeout=timeout if patience.metadata is None else min(timeout, patience.metadata),
        attempts=attempts if patience.metadata is None else 1,
        is_v1_allowed=not made.get_config_variable("ec2_metadata_v1_disabled"),
    )


def _number(made: Session, name: str) -> int:
    try:
        found = int(made.get_config_variable(name))
    except ValueError:
        found = -1
    if found < 0:
        raise errors.SettingError(f"{name} is no whole number", hint=f"Repair AWS_{name.upper()} or the profile.")
    return found


class _ProfileProviders:
    """botocore's providers of one profile, with the AWS CLI's cache, and processes that leave our input alone."""

    def __init__(self, made: Session, cache: _RoleCache, *, patience: Patience) -> None:
        from botocore.credentials import ProfileProviderBuilder

        self._made = made
        self._patience = patience
        self._builder = ProfileProviderBuilder(made, cache=cache)

    def providers(self, profile_name: str, disable_env_vars: bool = False) -> list[Any]:
        """As botocore's builder of that name makes them."""
        from botocore.credentials import ProcessProvider

        popen = functools.partial(_Process, patience=self._patience)
        process = ProcessProvider(profile_name, lambda: self._made.full_config, popen=popen)
        found = self._builder.providers(profile_name, disable_env_vars)
        return [process if each.METHOD == process.METHOD else each for each in found]


class _Process(subprocess.Popen[bytes]):
    """A ``credential_process``: it may lead somebody through a login, but does not hold us up for ever."""

    def __init__(self, command: Any, *, patience: Patience, **options: Any) -> None:
        self._patience = patience
        # A pipe is a command's input, or the requests of an MCP client: a program that reads would take them away.
        is_interactive = patience.asks and sys.stdin is not None and sys.stdin.isatty()
        super().__init__(command, stdin=None if is_interactive else subprocess.DEVNULL, **options)

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:  # noqa: A002 - its name
        """All that it prints."""
        seconds = self._patience.process if timeout is None else timeout
        try:
            return super().communicate(input, seconds)
        except subprocess.TimeoutExpired as error:
            raise errors.CredentialsBrokenError(
                f"the credential_process has not ended after {seconds:g} s", hint="Run it by hand, and repair it."
            ) from error
        finally:
            self._end()

    def _end(self) -> None:
        """Leave neither it nor its pipes, which a child of its own may hold open."""
        if self.poll() is None:
            self.kill()
        for pipe in (self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()
        self.wait()


def _assume_role_provider(
    made: Session,
    name: str,
    *,
    cache: _RoleCache,
    builder: _ProfileProviders,
    metadata: instance.InstanceMetadata,
    patience: Patience,
) -> Any:
    """botocore's provider, put together as botocore does, but for the cache, the prompt and the way to the instance."""
    from botocore import credentials as providers

    return providers.AssumeRoleProvider(
        load_config=lambda: made.full_config,
        client_creator=made.create_client,
        cache=cache,
        profile_name=name,
        prompter=_ask_for_code if patience.asks else _refuse_code,
        credential_sourcer=providers.CanonicalNameCredentialSourcer(
            [
                providers.EnvProvider(),
                providers.ContainerProvider(),
                providers.InstanceMetadataProvider(iam_role_fetcher=metadata),
            ]
        ),
        profile_provider_builder=builder,
    )


def _ask_for_code(prompt: str) -> str:
    if sys.stdin is None or not sys.stdin.isatty():
        raise _no_code(prompt, "there is no terminal to ask at")
    from getpass import getpass

    return getpass(prompt)


def _refuse_code(prompt: str) -> str:
    raise _no_code(prompt, "nobody is asked for it now")


def _no_code(prompt: str, reason: str) -> errors.CredentialsBrokenError:
    return errors.CredentialsBrokenError(
        f"the role asks for an MFA code, and {reason} ({errors.quote(prompt, limit=120)})",
        hint="Run `aws sts get-caller-identity` in a terminal first: the AWS CLI's session is used here too.",
    )


class _RoleCache:
    """The AWS CLI's cache of sessions of roles: shared with it, and with our next command. Not to have it is no error.

    A file that another process is writing is not there yet; one that cannot be written stays unwritten. Nothing is
    written for somebody who has no folder for AWS's files. ``is_stale``: what lies there was refused, and is not read.
    """

    def __init__(self, folder: str, *, is_stale: bool) -> None:
        from botocore.utils import JSONFileCache

        self._is_stale = is_stale
        self._folder = os.path.expanduser(folder)
        self._files = JSONFileCache(os.path.join(self._folder, "cli", "cache"))
        self._memory: dict[str, Any] = {}

    def __contains__(self, key: str) -> bool:
        if not self._is_stale:
            with contextlib.suppress(KeyError, OSError, ValueError):
                found = self._files[key]
                if _is_session(found):
                    self._memory[key] = found
        return key in self._memory

    def __getitem__(self, key: str) -> Any:
        return self._memory[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._memory[key] = value
        if os.path.isdir(self._folder):
            with contextlib.suppress(OSError):  # a home that is read-only, a full disk
                self._files[key] = value


def _is_session(found: object) -> bool:
    keys = found.get("Credentials") if isinstance(found, dict) else None
    wanted = ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")
    return isinstance(keys, dict) and all(isinstance(keys.get(name), str) for name in wanted)


# -- what went wrong ---------------------------------------------------------------------------------------------------


def explain(error: Exception, *, profile: str, is_sso: bool = False) -> tuple[str, str]:
    """What a provider raised, in one line, and the remedy that fits."""
    from botocore import exceptions

    text = errors.quote(str(error) or type(error).__name__, limit=_TEXT_CHARACTERS)
    log_in = f"Log in again: aws sso login --profile {profile}"
    if isinstance(error, (exceptions.SSOError, exceptions.TokenRetrievalError)):
        return text, log_in
    if isinstance(error, exceptions.ClientError):
        return text, _hint_for_refusal(error, log_in=log_in)
    if isinstance(error, exceptions.CredentialRetrievalError):
        is_process = error.kwargs.get("provider") == "custom-process"
        named_by = f"profile {profile}" if is_process else f"profile {profile} or AWS_CONTAINER_CREDENTIALS_FULL_URI"
        return text.rstrip(": "), f"Run by hand what {named_by} names, and repair it."
    if isinstance(error, (exceptions.HTTPClientError, exceptions.ConnectionError)):
        return text, "Check this machine's network, its proxy variables, and AWS_ENDPOINT_URL."
    if isinstance(error, exceptions.BotoCoreError):
        return text, f"Repair profile {profile} in ~/.aws/config; aws sts get-caller-identity tells whether it works."
    if isinstance(error, OSError) and error.filename:
        reason = error.strerror or type(error).__name__
        return f"{error.filename}: {reason}", f"It is named by profile {profile} or by an AWS variable: check the path."
    if isinstance(error, RuntimeError):
        return text, "Check this machine's clock, and what gives out the keys."
    kind = type(error).__name__
    return f"what it answers cannot be understood ({kind}: {text})", log_in if is_sso else (
        f"Run by hand what profile {profile} or the AWS variables name as the source, and repair it."
    )


def _hint_for_refusal(error: Any, *, log_in: str) -> str:
    if error.operation_name == "GetRoleCredentials":
        return log_in
    code = error.response.get("Error", {}).get("Code", "")
    if code in {"InvalidIdentityToken", "ExpiredTokenException", "IDPRejectedClaim", "ExpiredToken"}:
        return "Renew the token or the keys that the role is assumed with."
    return "Check the keys that the role is assumed with, the role's ARN, and its trust policy."


def not_found(*, environ: Mapping[str, str], profile: str | None, instance: str) -> errors.CredentialsNotFoundError:
    """The error that says where credentials were looked for."""
    name = profiles.chosen_name(environ=environ, profile=profile) or profiles.DEFAULT
    keys, config = (profiles.path_of(kind, environ=environ) for kind in ("credentials", "config"))
    return errors.CredentialsNotFoundError(
        "no AWS credentials: not in AWS_ACCESS_KEY_ID, no AWS_WEB_IDENTITY_TOKEN_FILE, "
        f"none for profile {name!r} in {keys} and {config}, no container's role (AWS_CONTAINER_CREDENTIALS_FULL_URI), "
        f"and the instance's metadata: {instance}",
        hint="Run `aws configure`, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use --local.",
    )
