"""AWS's shared files, ``~/.aws/config`` and ``~/.aws/credentials``, as far as no botocore is needed to read them.

Sections are ``[default]``, ``[profile NAME]`` and ``[services NAME]`` in the first file, ``[NAME]`` in the second,
whose keys win. A missing file is an empty one; a damaged one is an error that names it.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Mapping

from .. import errors

__all__ = ["DEFAULT", "Profile", "ca_bundle", "chosen_name", "load", "path_of", "stamp_of"]

DEFAULT = "default"
_SETTLED_AFTER_NS = 50_000_000

_FILES = {
    "config": ("AWS_CONFIG_FILE", "~/.aws/config"),
    "credentials": ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
}


class Profile:
    """One profile; ``is_chosen`` tells that somebody named it, else it is ``default`` for want of a choice.

    ``config`` and ``credentials`` are its sections in the two files (None: the file has none), ``services`` the blocks
    of the ``[services]`` section that it refers to.
    """

    __slots__ = ("config", "credentials", "is_chosen", "name", "services")

    def __init__(
        self,
        name: str,
        *,
        is_chosen: bool,
        config: Mapping[str, str] | None,
        credentials: Mapping[str, str] | None,
        services: Mapping[str, Mapping[str, str]],
    ) -> None:
        self.name = name
        self.is_chosen = is_chosen
        self.config = config
        self.credentials = credentials
        self.services = services

    @property
    def exists(self) -> bool:
        """One of the files has a section for it."""
        return self.config is not None or self.credentials is not None

    def get(self, key: str) -> str:
        """The value of a key, empty if it has none."""
        for section in (self.credentials, self.config):
            if section is not None and section.get(key):
                return section[key]
        return ""


def chosen_name(*, environ: Mapping[str, str], profile: str | None = None) -> str | None:
    """The profile that somebody chose, or None. Botocore's order: ``AWS_DEFAULT_PROFILE`` first."""
    return profile or environ.get("AWS_DEFAULT_PROFILE") or environ.get("AWS_PROFILE") or None


def path_of(kind: str, *, environ: Mapping[str, str]) -> str:
    """Where the file ``config`` or ``credentials`` lies."""
    variable, default = _FILES[kind]
    path = environ.get(variable) or default
    home = environ.get("HOME")
    return os.path.join(home, path[2:]) if home and path.startswith("~/") else os.path.expanduser(path)


def load(*, environ: Mapping[str, str], profile: str | None = None) -> Profile:
    """Read the chosen profile, or ``default``.

    Raises:
        errors.CredentialsBrokenError: a file cannot be read or parsed.
    """
    chosen = chosen_name(environ=environ, profile=profile)
    name = chosen or DEFAULT
    config = _parse(path_of("config", environ=environ))
    keys = _parse(path_of("credentials", environ=environ))
    # Of two spellings of one profile ([default], [profile default]) the last counts, and nothing of the other.
    ours = next((config[section] for section in reversed(list(config)) if _is_profile(section, name)), None)
    services = _services(config, (ours or {}).get("services", ""))
    return Profile(name, is_chosen=chosen is not None, config=ours, credentials=keys.get(name), services=services)


def ca_bundle(*, environ: Mapping[str, str], profile: str | None = None) -> str | None:
    """The CA bundle that the profile names, unless ``AWS_CA_BUNDLE`` names one (which the transport reads itself)."""
    if environ.get("AWS_CA_BUNDLE"):
        return None
    return load(environ=environ, profile=profile).get("ca_bundle") or None


def _is_profile(section: str, name: str) -> bool:
    if section == DEFAULT:
        return name == DEFAULT
    kind, _, rest = section.partition(" ")
    return kind == "profile" and rest.strip().strip("\"'") == name


def stamp_of(path: str) -> tuple[object, ...]:
    """What changes when the file was written, replaced, made or removed."""
    try:
        status = os.stat(path)
    except OSError:
        return (path,)
    # The clock of files ticks in milliseconds: what was written just now may be written again in the same tick.
    now = time.time_ns()
    is_settled = now - status.st_mtime_ns > _SETTLED_AFTER_NS
    return path, status.st_mtime_ns, status.st_size, status.st_ino, 0 if is_settled else now


def _parse(path: str) -> Mapping[str, Mapping[str, str]]:
    """Section -> key -> value; empty if there is no such file."""
    return _parse_version(path, stamp_of(path))


@functools.lru_cache(maxsize=8)
def _parse_version(path: str, stamp: tuple[object, ...]) -> Mapping[str, Mapping[str, str]]:
    """``_parse`` for one version of the file: a command looks into it for its keys, its region, its endpoint, ..."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except UnicodeDecodeError:
        raise _broken(path, "it is not UTF-8") from None
    except OSError as error:
        raise _broken(path, error.strerror or type(error).__name__) from error
    if text.startswith("\ufeff"):
        # botocore and the AWS CLI do not read it either; what they say of it nobody understands.
        raise _broken(path, "it begins with a byte order mark (save it as UTF-8 without one)")
    import configparser  # only those who have such a file pay for it

    # No section is the default of the others: unlike configparser's own DEFAULT.
    parser = configparser.RawConfigParser(default_section=None)  # type: ignore[call-overload]
    try:
        parser.read_string(text)
    except configparser.Error as error:
        # Not the parser's own message: it quotes the line, which may hold a key.
        raise _broken(path, f"{type(error).__name__}{_line_of(error)}") from None
    return {section: dict(parser[section]) for section in parser.sections()}


def _line_of(error: Exception) -> str:
    line = getattr(error, "lineno", None) or next((number for number, _ in getattr(error, "errors", ())), None)
    return f" in line {line}" if line else ""


def _broken(path: str, reason: str) -> errors.CredentialsBrokenError:
    return errors.CredentialsBrokenError(f"{path} cannot be used: {reason}", hint="Repair the file, or move it away.")


def _services(config: Mapping[str, Mapping[str, str]], name: str) -> dict[str, dict[str, str]]:
    """The settings of each service under ``[services NAME]``: an indented block below the service's key."""
    for section in config if name else ():
        kind, _, rest = section.partition(" ")
        if kind == "services" and rest.strip().strip("\"'") == name:
            return {service: _block(text) for service, text in config[section].items()}
    return {}


def _block(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}
