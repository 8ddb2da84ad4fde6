"""The way to AWS: models, region, endpoints, proxies, trust, and whether both clocks agree. Little of it needs keys."""

from __future__ import annotations

from ... import errors, settings
from . import access, check, places
from .check import Check
from .places import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...aws.reaching import Reached
    from .context import Context

__all__ = ["KNOWN_REGIONS", "PROBES"]

# Where AWS has announced the service: 22 June and 19 August 2026. What is not here is asked, and not refused.
KNOWN_REGIONS = (
    *("us-east-1", "us-east-2", "us-west-2", "eu-west-1", "ap-northeast-1"),
    *("ap-south-1", "ap-southeast-1", "ap-southeast-2", "eu-central-1", "eu-north-1"),
)
# AWS refuses signatures that are five minutes off, and vmnest corrects itself by then; others do not.
SKEW_THAT_MATTERS_SECONDS = 60.0
# All services that vmnest calls; the first two are what sandboxes need.
SERVICES = (
    *(access.MICROVMS, access.CONNECTORS, "sts", "iam", "logs", "cloudwatch", "s3", "ec2", "service-quotas"),
)  # fmt: skip


# -- botocore ----------------------------------------------------------------------------------------------------------


def models(context: Context) -> list[Check]:
    """The descriptions of the services that botocore brings along."""
    from ...aws import model

    versions: dict[str, object] = {}
    findings = []
    for name, verdict in ((access.MICROVMS, check.FAILED), (access.CONNECTORS, check.WARNING)):
        try:
            versions[name] = model.load(name).api_version
        except errors.VmnestError as error:
            versions[name] = None
            findings.append(Finding(verdict, error.message, remedy=error.hint))
    fine = ", ".join(f"{name} of {version}" for name, version in versions.items())
    return [places.combine("aws.models", title="service models", fine=fine, findings=findings, data=versions)]


# -- region ------------------------------------------------------------------------------------------------------------


def region(context: Context) -> list[Check]:
    """The region, where it is from, and whether it has the service."""
    name, title = "aws.region", "region"
    found = access.region(context)
    if isinstance(found, errors.VmnestError):
        return [access.of_error(name, found, title=title)]
    offers = _offers(context)
    text = f"{found.name} ({access.shown_source(found.source)})"
    data = {"region": found.name, "source": found.source, "has_service": offers}
    finding = _doubt(found.name, text, offers)
    findings = [] if finding is None else [finding]
    if found.source == access.STACK:
        findings.append(_only_in_stack(found.name))
    return [places.combine(name, title=title, fine=text, findings=findings, data=data)]


def _doubt(region: str, text: str, offers: bool | None) -> Finding | None:
    """What speaks against a region; ``offers`` is what it says itself, if it was asked."""
    is_known = region in KNOWN_REGIONS
    if offers or (offers is None and is_known):
        return None
    remedy = f"Choose another region (--region, or AGENT_SANDBOX_REGION): AWS has it in {', '.join(KNOWN_REGIONS)}."
    if offers is None:
        return Finding(check.WARNING, f"{text}: nobody could be asked whether it has the service", remedy=remedy)
    if not is_known:
        return Finding(
            check.FAILED, f"{text} does not seem to have the service: it refuses without a reason", remedy=remedy
        )
    return Finding(
        check.FAILED,
        f"{text} refuses the service to this account without a reason, and AWS has it there",
        remedy="Ask who runs the account's organization: a policy of theirs may forbid the region, or the service.",
    )


def _only_in_stack(region: str) -> Finding:
    """The verbs for infrastructure know it, and the image that they make tells the others; until then these do not."""
    return Finding(
        check.FAILED,
        f"only {access.STACK} names one, {region}, which the infra verbs use, and these checks; others know none",
        remedy=f"Make an image there (vmnest infra up), which tells them: or export AGENT_SANDBOX_REGION={region}",
    )


def _offers(context: Context) -> bool | None:
    """Whether the region has the service; None if it could not be asked."""
    answer = access.first_call(context)
    if isinstance(answer, errors.AccessDeniedError):
        # One that is not there refuses everybody, and without a word.
        return answer.reason is not None
    if isinstance(answer, errors.VmnestError):
        return None
    return True


# -- endpoints ---------------------------------------------------------------------------------------------------------


def endpoint(context: Context) -> list[Check]:
    """Where calls go, who says so, and whether somebody answers there."""
    name, title = "aws.endpoint", "endpoint"
    overrides = access.attempt(lambda: dict(_overrides(context)))
    if isinstance(overrides, errors.VmnestError):
        return [access.of_error(name, overrides, title=title)]
    found = access.reached(context)
    if isinstance(found, errors.RegionNotFoundError):
        return [access.skipped(name, title=title, reason=access.NO_REGION)]
    if isinstance(found, errors.VmnestError):
        return [access.of_error(name, found, title=title)]
    url, reached = found
    if isinstance(reached, errors.ProxyError):
        return [access.skipped(name, title=title, reason="the way through the proxy fails")]
    if isinstance(reached, errors.SettingError):
        return [access.skipped(name, title=title, reason=access.UNUSABLE_WAY)]
    own = overrides.get(access.MICROVMS)
    text = url if own is None else f"{url} ({own['source']})"
    others = [f"{service} to {each['url']} ({each['source']})" for service, each in overrides.items() if each != own]
    data = {"url": url, "overrides": overrides}
    findings = list(_judge(text, reached, context, source=None if own is None else own["source"]))
    fine = text if isinstance(reached, errors.VmnestError) else f"{text} answers in {reached.seconds * 1000:.0f} ms"
    if others:
        fine += f"; {', '.join(others)}"
    return [places.combine(name, title=title, fine=fine, findings=findings, data=data)]


def _overrides(context: Context) -> Iterator[tuple[str, dict[str, str]]]:
    """Services whose endpoint somebody configured."""
    from ...aws import endpoint as endpoints

    for service in SERVICES:
        found = endpoints.find_override(service, environ=context.environ)
        if found is not None:
            yield service, {"url": found.url, "source": found.source}


def _judge(
    text: str, reached: Reached | errors.VmnestError, context: Context, *, source: str | None
) -> Iterator[Finding]:
    if isinstance(reached, errors.VmnestError):
        remedy = reached.hint
        if source is not None and not isinstance(reached, errors.TlsError):
            remedy = f"Let {source} name an endpoint that answers, or unset it."
        yield Finding(check.FAILED, f"{text}: {reached.message}", remedy=remedy)
        return
    made = access.service(context, access.MICROVMS)
    if isinstance(made, errors.UsageError):  # the local cloud, set for AWS
        yield Finding(check.FAILED, made.message, remedy=made.hint)
    elif reached.is_foreign:
        said = f" ({reached.text})" if reached.text else ""
        yield Finding(
            check.FAILED if _is_foreign(access.first_call(context)) else check.WARNING,
            f"{text}: {access.FOREIGN}, with HTTP {reached.status}{said}",
            remedy="Check the endpoint's URL, and what stands before it: a proxy, or the login page of a network.",
        )


def _is_foreign(answer: object) -> bool:
    """What a signed call met is not the service either, which has a word for each of its refusals."""
    is_refusal = isinstance(answer, errors.ServiceError) and not answer.details.get("error_type")
    return is_refusal or isinstance(answer, errors.AnswerInvalidError)


# -- proxies -----------------------------------------------------------------------------------------------------------


def proxy(context: Context) -> list[Check]:
    """The proxy that calls go through. Logins in its URL are not shown."""
    from urllib.parse import urlsplit

    from ...wire import proxies

    name, title, environ = "aws.proxy", "proxy", context.environ
    found = access.reached(context)
    url = urlsplit(found[0] if isinstance(found, tuple) else "https://lambda.amazonaws.com")
    scheme, host = url.scheme, url.hostname or ""
    chosen = access.attempt(lambda: proxies.choose(scheme=scheme, host=host, port=url.port, environ=environ))
    if isinstance(chosen, errors.VmnestError):
        return [access.of_error(name, chosen, title=title)]
    variable, value = proxies.find_variable(scheme, environ)
    exceptions = proxies.find_variable("no", environ)[1]
    data = {"proxy": chosen and chosen.url, "variable": variable if value else None, "no_proxy": exceptions or None}
    if chosen is None:
        text = f"none for {host}, in spite of {variable}" if value else "none"
        return [check.Check(name, title=title, verdict=check.OK, detail=text, data=data)]
    failure = found[1] if isinstance(found, tuple) else None
    findings = []
    if isinstance(failure, errors.ProxyError):
        remedy = f"Repair {variable}, or name {host} in NO_PROXY if no proxy is needed."
        findings.append(Finding(check.FAILED, failure.message, remedy=remedy))
    fine = f"{chosen.url} ({variable}){f', but not for {exceptions}' if exceptions else ''}"
    return [places.combine(name, title=title, fine=fine, findings=findings, data=data)]


# -- trust -------------------------------------------------------------------------------------------------------------

_BUNDLE_VARIABLES = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")


def trust(context: Context) -> list[Check]:
    """Whose certificates are trusted."""
    from ...aws import profiles
    from ...transport import tls

    name, title, environ = "aws.trust", "certificates", context.environ
    own = access.attempt(lambda: profiles.ca_bundle(environ=environ))
    if isinstance(own, errors.VmnestError):
        return [access.skipped(name, title=title, reason="the profile cannot be read")]
    variable = next((each for each in _BUNDLE_VARIABLES if environ.get(each)), None)
    source, path = ("the profile", own) if own else (variable, environ.get(variable or ""))
    failure = _error_of(lambda: tls.build_context(own or True, environ=environ))
    findings = []
    if failure is not None:
        findings.append(Finding(check.FAILED, failure.message, remedy=failure.hint))
    if access.attempt(lambda: settings.is_on("verify_tls", environ=environ)) is False:
        text = "the certificates of sandboxes are not verified (AGENT_SANDBOX_VERIFY_TLS)"
        findings.append(Finding(check.WARNING, text, remedy="unset AGENT_SANDBOX_VERIFY_TLS"))
    fine = "those that the system trusts" if source is None else f"those in {path} ({source})"
    data = {"bundle": path, "source": source}
    return [places.combine(name, title=title, fine=fine, findings=findings, data=data)]


def _error_of(make: Callable[[], object]) -> errors.VmnestError | None:
    made = access.attempt(make)
    return made if isinstance(made, errors.VmnestError) else None


# -- the clock ---------------------------------------------------------------------------------------------------------


def clock(context: Context) -> list[Check]:
    """Whether this machine's clock agrees with the service's: signatures hold for some minutes."""
    name, title = "aws.clock", "clock"
    found = access.reached(context)
    if not isinstance(found, tuple) or isinstance(found[1], errors.VmnestError):
        reason = access.NO_REGION if isinstance(found, errors.RegionNotFoundError) else "nobody answers"
        return [access.skipped(name, title=title, reason=reason)]
    reached = found[1]
    if reached.is_foreign:
        return [access.skipped(name, title=title, reason=access.FOREIGN)]
    if reached.skew is None:
        return [
            check.Check(name, title=title, verdict=check.UNKNOWN, detail="the service does not say what time it is")
        ]
    behind = reached.skew
    data = {"seconds_behind": round(behind, 1)}
    if abs(behind) < SKEW_THAT_MATTERS_SECONDS:
        text = f"agrees with the service's to {max(1.0, abs(behind)):.0f} s"
        return [check.Check(name, title=title, verdict=check.OK, detail=text, data=data)]
    shown = f"{abs(behind):.0f} s {'behind' if behind > 0 else 'ahead of'} the service's"
    text = f"this machine's clock is {shown}: vmnest then signs with the service's time, but other programs fail"
    remedy = "Set the clock: timedatectl set-ntp true (in a virtual machine, see that it follows its host's)."
    return [check.Check(name, title=title, verdict=check.WARNING, detail=text, remedy=remedy, data=data)]


PROBES = (models, region, endpoint, proxy, trust, clock)
