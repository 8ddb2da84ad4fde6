"""``create``, and the options by which ``create`` and ``run`` say what sandbox they want."""

from __future__ import annotations

import contextlib
import os

from .. import errors
from .. import target as targets
from ..ops import creation, sandboxes
from ..wire import names
from . import output, render, values, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from . import verbs

__all__ = [
    *("CreationOptions", "add_options", "build_parser", "demand", "leading_to_doctor", "remark_what_is_local", "run"),
]


class CreationOptions(words.Options):
    """What says which sandbox to make (also for ``run``)."""

    image: str | None
    image_version: str | None
    role: str | None
    cpus: float | None
    memory: int | None
    idle: int | None
    suspend_after: int | None
    suspended_for: int | None
    max_duration: int | None
    no_auto_resume: bool
    run_payload: str | None
    log_group: str | None
    ingress: list[str] | None
    egress: bool
    egress_connector: str | None
    egress_allow: list[str] | None
    label: list[tuple[str, str]] | None
    wait_timeout: float | None


class _CreateOptions(CreationOptions):
    replace: bool


def add_options(parser: words.Parser) -> None:
    """Add them."""
    _add_what_it_is(parser)
    _add_how_long_it_lives(parser)
    _add_what_it_reaches(parser)
    parser.option(
        "--label", metavar="KEY=VALUE", kind=values.parse_label, repeat=True, help="a label of your own (repeatable)"
    )
    parser.option(
        "--wait-timeout",
        metavar="SECONDS",
        kind=values.parse_seconds,
        help="how long to wait for the sandbox to run (default: 120)",
    )


def _add_what_it_is(parser: words.Parser) -> None:
    parser.option("-i", "--image", metavar="IMAGE", help="image to start from: ARN or name")
    parser.option("--image-version", metavar="VERSION", help="version of the image (default: its newest)")
    parser.option("--role", metavar="ARN", help="role that code in the sandbox gets")
    parser.option("--cpus", metavar="N", kind=values.parse_cpus, help="CPUs that the sandbox needs")
    parser.option(
        "-m", "--memory", metavar="MIB", kind=values.parse_memory, help="memory that the sandbox needs: 2048, 2GiB"
    )
    parser.option(
        "--run-payload",
        metavar="TEXT|@FILE",
        kind=values.parse_payload,
        help="text for the image's run hook, up to 4096 bytes; @FILE keeps it off the command line",
    )
    parser.option("--log-group", metavar="NAME", help="CloudWatch log group that the sandbox writes to")


def _add_how_long_it_lives(parser: words.Parser) -> None:
    parse_idle = values.parse_seconds_from(names.SHORTEST_IDLE_SECONDS, names.LONGEST_LIFE_SECONDS)
    parser.option(
        "--idle",
        metavar="SECONDS",
        kind=parse_idle,
        help=f"suspend it after so long without a request, at least {names.SHORTEST_IDLE_SECONDS} "
        f"(default: {names.DEFAULT_IDLE_SECONDS})",
    )
    parser.option("--suspend-after", metavar="SECONDS", kind=parse_idle, help="the same as --idle")
    parser.option(
        "--suspended-for",
        metavar="SECONDS",
        kind=values.parse_seconds_from(0, names.LONGEST_LIFE_SECONDS),
        help="end it when it was suspended for so long; 0: end it instead of suspending it "
        f"(default: {names.LONGEST_LIFE_SECONDS})",
    )
    parser.option(
        "--max-duration",
        metavar="SECONDS",
        kind=values.parse_seconds_from(1, names.LONGEST_LIFE_SECONDS),
        help=f"end it after so long in any case, suspended or not (default, and most: {names.LONGEST_LIFE_SECONDS})",
    )
    parser.switch(
        "--no-auto-resume",
        help="once suspended, no request alone resumes it; vmnest start does, and commands that use it",
    )


def _add_what_it_reaches(parser: words.Parser) -> None:
    parser.option(
        "--ingress",
        metavar="NAME|ARN",
        repeat=True,
        help="ingress connector, such as HTTP_INGRESS or SHELL_INGRESS (repeatable; default: HTTP_INGRESS)",
    )
    parser.switch(
        "-e", "--egress", help="attach the egress connector of AGENT_SANDBOX_EGRESS_CONNECTOR, else of infra up"
    )
    parser.option("--egress-connector", metavar="NAME|ARN", help="egress connector to attach")
    parser.option(
        "--egress-allow",
        metavar="HOST[:PORT]",
        repeat=True,
        help="host that a local sandbox may reach, at ports 80 and 443 unless PORT is given, or internet: "
        "all that is public (repeatable; default: none)",
    )


def demand(options: CreationOptions) -> creation.Demand:
    """What the options say."""
    return creation.Demand(
        image=options.image,
        image_version=options.image_version,
        role=options.role,
        cpus=options.cpus,
        memory=options.memory,
        idle=_idle_seconds(options),
        suspended_for=options.suspended_for,
        max_duration=options.max_duration,
        auto_resume=not options.no_auto_resume,
        run_payload=options.run_payload,
        log_group=options.log_group,
        ingress=options.ingress,
        egress=options.egress,
        egress_connector=options.egress_connector,
        egress_allow=options.egress_allow,
        labels=dict(options.label or ()),
        wait_timeout=options.wait_timeout,
    )


def _idle_seconds(options: CreationOptions) -> int | None:
    """The one option that has two names."""
    given = {seconds for seconds in (options.idle, options.suspend_after) if seconds is not None}
    if len(given) > 1:
        raise errors.UsageError(
            f"--idle {options.idle} and --suspend-after {options.suspend_after} are one option with two names",
            hint="Give one of them.",
        )
    return given.pop() if given else None


# What users of docker type for a new sandbox.
HABITS = {
    **dict.fromkeys(
        ("-v", "--volume", "--mount"),
        "Directories are copied, not mounted: vmnest create NAME, then vmnest cp -r DIR NAME:PATH. ",
    ),
    **dict.fromkeys(
        ("-p", "--publish", "--expose"), "Ports are forwarded: vmnest create NAME, then vmnest forward NAME -r PORT. "
    ),
    **dict.fromkeys(
        ("--network", "--net"),
        "It reaches what --egress-allow names (with --local), or its --egress-connector leads to. ",
    ),
}
_CREATE_HABITS = {
    **HABITS,
    **dict.fromkeys(("-d", "--detach"), "A sandbox that is made stays until it is removed, or its time is up. "),
    "--name": "The name needs no option: vmnest create NAME. ",
    "--rm": "It stays: vmnest run makes one that is removed afterwards. ",
}


def build_parser(verb: verbs.Verb) -> words.Parser:
    """The verb's options."""
    parser = words.Parser(verb.title, summary=verb.summary, names="NAME", habits=_CREATE_HABITS, options=_CreateOptions)
    add_options(parser)
    parser.switch("--replace", help="end the sandbox that has this name, if there is one, and take its place")
    return parser


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Do it, and print the name."""
    assert isinstance(options, _CreateOptions)
    output.remark_unusual_place(options=options)
    (name,) = options.names
    with (
        leading_to_doctor(),
        output.warnings_as_remarks(options=options),
        output.progress(f"starting {name}", options=options),
    ):
        data = sandboxes.create_sandbox(
            name=name,
            demand=demand(options),
            replace=options.replace,
            local=options.local or None,
            region=options.region,
        )
    output.result(data, options=options, text=f"{render.to_printable(data['name'])}\n")
    remark_sources(data, options)
    remark_what_is_local(options)
    return 0


@contextlib.contextmanager
def leading_to_doctor() -> Iterator[None]:
    """Have the error for what AWS lacks here name the command that tells all of it: one error names one thing."""
    try:
        yield
    except (errors.RegionNotFoundError, errors.CredentialsNotFoundError, errors.UsageError) as error:
        if not isinstance(error, errors.UsageError) or error.message == targets.NO_IMAGE:
            error.add_hint("vmnest doctor shows all that is missing.")
        raise


def remark_sources(data: Mapping[str, object], options: words.Options) -> None:
    """Say where that is from which nobody named."""
    sources = data.get("sources")
    if isinstance(sources, dict):
        for source in dict.fromkeys(sources.values()):
            parts = [part for name, part in _PARTS.items() if sources.get(name) == source]
            output.remark(f"{' and '.join(parts)}: {source}", options=options)


_PARTS = {"image_arn": "image", "execution_role_arn": "role"}


def remark_what_is_local(options: CreationOptions) -> None:
    """Say of a sandbox on this machine what is not as the options and the environment ask for it."""
    given = {
        "--role": options.role,
        "--egress": options.egress,
        "--egress-connector": options.egress_connector if not _is_internet(options.egress_connector) else None,
    }
    for flag, value in given.items():
        if value and output.is_local(options=options):
            instead = "; see --egress-allow" if "egress" in flag else ""
            output.remark(
                f"{flag} has no effect: a local sandbox has no role and no connector{instead}",
                options=options,
            )
    if output.is_local(options=options):
        _remark_sizes(options)
    output.remark_local_cloud(options=options)


def _remark_sizes(options: CreationOptions) -> None:
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if (options.cpus or 0) > cpus:
        output.remark(f"--cpus {options.cpus:g} is more than this machine has: it gets {cpus}", options=options)
    mib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20 if hasattr(os, "sysconf") else 0
    if 0 < mib < (options.memory or 0):
        output.remark(
            f"--memory {options.memory} MiB is more than this machine has: {mib} MiB, which all share", options=options
        )


def _is_internet(connector: str | None) -> bool:
    """That connector is ``--egress-allow internet`` here, by another name."""
    return (connector or "").rpartition(":")[2] == names.INTERNET_EGRESS
