"""Which URL: an override from AWS's own settings, else the service's host in the region.

The overrides are botocore's, in its order: ``AWS_ENDPOINT_URL_<SERVICE>``, ``AWS_ENDPOINT_URL``, the profile's
``[services]`` block, the profile's ``endpoint_url``; none of them while configured endpoints are to be ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from .. import errors
from . import codec, profiles

__all__ = ["check", "find_override", "resolve", "variant"]

# lambda-microvms and lambda-core are both served under Lambda's own host.
_HOST_PREFIX = "lambda"
# Names of services in variables and profiles where those are not the models' (botocore takes the service's id).
_NAMES = {"logs": "cloudwatch_logs"}

# Region prefix -> DNS suffix of the partition, and of its dual-stack hosts (empty: has none).
_SUFFIXES = (
    ("cn-", "amazonaws.com.cn", "api.amazonwebservices.com.cn"),
    ("us-isob-", "sc2s.sgov.gov", "api.aws.scloud"),
    ("us-isof-", "csp.hci.ic.gov", "api.aws.hci.ic.gov"),
    ("us-iso-", "c2s.ic.gov", "api.aws.ic.gov"),
    ("eu-isoe-", "cloud.adc-e.uk", "api.cloud-aws.adc-e.uk"),
    ("eusc-", "amazonaws.eu", "api.amazonwebservices.eu"),
    ("", "amazonaws.com", "api.aws"),
)
_URL = re.compile(
    r"https?://(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?(?:/[^\s?#]*)?", re.IGNORECASE | re.ASCII
)


class Override(NamedTuple):
    """A configured endpoint, and where it stands: a variable's name, ``profile NAME``, ``services of profile NAME``."""

    url: str
    source: str


def resolve(service: str, *, region: str, environ: Mapping[str, str], profile: str | None = None) -> str | None:
    """The base URL for calls to ``service``, for example ``lambda-microvms``; without a slash at its end.

    None for a classic service whose endpoint is not configured: it has rules of its own, request by request.

    Raises:
        errors.SettingError: an override is no URL; the message names where it stands.
    """
    override = find_override(service, environ=environ, profile=profile)
    if override is not None:
        return override.url
    found = profiles.load(environ=environ, profile=profile)
    return None if service in codec.CLASSIC else _own_host(region, _variant(environ, found))


def find_override(service: str, *, environ: Mapping[str, str], profile: str | None = None) -> Override | None:
    """The URL that somebody configured for calls to ``service``, or None.

    Raises:
        errors.SettingError: it is no URL; the message names where it stands.
    """
    found = profiles.load(environ=environ, profile=profile)
    if _is_on("ignore_configured_endpoint_urls", environ, found):
        return None
    for source, url in _overrides(service, environ, found):
        if url:
            return Override(check(url, source), source)
    return None


def variant(*, environ: Mapping[str, str], profile: str | None = None) -> codec.Variant:
    """Which of the services' own hosts are wanted."""
    return _variant(environ, profiles.load(environ=environ, profile=profile))


def _variant(environ: Mapping[str, str], found: profiles.Profile) -> codec.Variant:
    return codec.Variant(
        is_fips=_is_on("use_fips_endpoint", environ, found),
        is_dualstack=_is_on("use_dualstack_endpoint", environ, found),
    )


def _overrides(service: str, environ: Mapping[str, str], found: profiles.Profile) -> list[tuple[str, str]]:
    name = _NAMES.get(service, service.replace("-", "_"))
    own, common = f"AWS_ENDPOINT_URL_{name.upper()}", "AWS_ENDPOINT_URL"
    return [
        (own, environ.get(own, "")),
        (common, environ.get(common, "")),
        (f"services of profile {found.name}", found.services.get(name, {}).get("endpoint_url", "")),
        (f"profile {found.name}", found.get("endpoint_url")),
    ]


def _own_host(region: str, wanted: codec.Variant) -> str:
    plain, dual = next((plain, dual) for prefix, plain, dual in _SUFFIXES if region.startswith(prefix))
    host = f"{_HOST_PREFIX}-fips" if wanted.is_fips else _HOST_PREFIX
    return f"https://{host}.{region}.{dual if wanted.is_dualstack else plain}"


def _is_on(name: str, environ: Mapping[str, str], found: profiles.Profile) -> bool:
    """A switch of AWS's: ``AWS_<NAME>``, else the profile's key; only ``true`` switches on."""
    return (environ.get(f"AWS_{name.upper()}") or found.get(name)).strip().lower() == "true"


def check(url: str, source: str) -> str:
    """The URL without a slash at its end.

    Raises:
        errors.SettingError: it is no URL; ``source`` says where it stands.
    """
    match = _URL.fullmatch(url)
    if match is None or int(match["port"] or 1) not in range(1, 65536):
        raise errors.SettingError(
            f"the endpoint in {source} is no http or https URL", hint="It looks like https://HOST."
        )
    return url.rstrip("/")
