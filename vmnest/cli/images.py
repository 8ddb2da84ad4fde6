"""``image init|build|ls|inspect|versions|logs|rm|prune``."""

from __future__ import annotations

from .. import errors, settings
from ..ops import builds, images
from . import asking, batch, failure, infra_progress, members, output, render, tables, values, variables, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from . import verbs

__all__ = ["build_parser", "run"]

_STEP_BYTES = 4 * 2**20  # an upload is told in steps of so much


class _BuildOptions(words.Options):
    name: str | None
    bucket: str | None
    role: str | None
    memory: int | None
    env: list[str] | None
    env_file: list[str] | None
    secret: list[str] | None
    hooks: bool
    no_hooks: bool
    wait: bool
    no_wait: bool
    base_image: str | None
    base_image_version: str | None
    all_capabilities: bool
    log_group: str | None
    egress_allow: list[str] | None
    description: str | None
    timeout: float | None


class _ImageOptions(words.Options):
    managed: bool = False
    image_version: str | None = None
    no_wait: bool = False
    versions: bool = False
    dry_run: bool = False
    yes: bool = False
    timeout: float | None = None


_NAMES = {
    "init": "[DIR]",
    "build": "[DIR]",
    "ls": "",
    "inspect": "IMAGE",
    "versions": "IMAGE",
    "logs": "IMAGE",
    "rm": "IMAGE...",
    "prune": "",
}
_NOTES = {
    "init": "DIR must not be there yet, or be empty; default: ./guest, of which image build makes an image by default.",
    "build": "DIR has a Dockerfile at its top level; default: ./guest, or else the guest that comes with vmnest.\n"
    "What is not given is as sandbox.yaml and the outputs of infra up say. What .dockerignore excludes\n"
    "is left out. Values of variables are frozen into the image: whoever may look at it can read them.",
    "inspect": "Always JSON, with or without --json.",
    "prune": "Images stay that a live MicroVM was started from, that a sandbox or AGENT_SANDBOX_IMAGE_ARN names, and\n"
    "that a stack has made, here or elsewhere. It asks first; without a terminal to ask on it wants --yes.",
}


def build_parser(verb: verbs.Verb) -> words.Parser:
    """The verb's options."""
    action = verb.words[1]
    parser = words.Parser(
        verb.title,
        summary=verb.summary,
        names=_NAMES[action],
        notes=_NOTES.get(action, ""),
        without_name="" if action in ("init", "build") else "vmnest image ls lists them. ",
        options=_BuildOptions if action == "build" else _ImageOptions,
    )
    if action == "build":
        _add_what_it_is(parser)
        _add_how_it_is_built(parser)
    else:
        _add_own_options(parser, action)
    if action == "init":
        return parser
    seconds = {"build": builds.BUILD_SECONDS, "rm": images.REMOVE_SECONDS, "prune": images.REMOVE_SECONDS}
    parser.option(
        "--timeout",
        metavar="SECONDS",
        kind=values.parse_seconds,
        help=f"how long all of it may take (default: {seconds.get(action, images.ASK_SECONDS):.0f})",
    )
    return parser


def _add_what_it_is(parser: words.Parser) -> None:
    parser.option("-n", "--name", metavar="NAME", help="the image's name; one that exists gets a new version")
    parser.option("-b", "--bucket", metavar="NAME", help="S3 bucket that the content is uploaded to")
    parser.option("--role", metavar="ARN", help="role that the build has")
    parser.option(
        "-m",
        "--memory",
        metavar="MIB",
        kind=values.parse_memory,
        help="memory of its MicroVMs: 512, 1024, 2048, 4096 or 8192 (default: 2048)",
    )
    parser.option(
        "-e",
        "--env",
        metavar="NAME[=VALUE]",
        repeat=True,
        help="variable of everything in it; NAME alone: with the value that it has here (repeatable)",
    )
    parser.option("--env-file", metavar="FILE", repeat=True, help="file of such variables, one a line (repeatable)")
    parser.option(
        "--secret", metavar="NAME", repeat=True, help="the same as --env NAME: the image keeps its value (repeatable)"
    )
    parser.switch("--hooks", help="call its lifecycle hooks (default: if vmnest's agent is in DIR)")
    parser.switch("--no-hooks", help="do not call any")
    parser.switch("--all-capabilities", help="give its programs all capabilities of the kernel")
    parser.option("--description", metavar="TEXT", help="a text for people")


def _add_how_it_is_built(parser: words.Parser) -> None:
    parser.option("--base-image", metavar="NAME|ARN", help="the service's image to build on (default: its newest)")
    parser.option("--base-image-version", metavar="VERSION", help="version of that (default: its newest)")
    parser.option("--log-group", metavar="NAME", help="CloudWatch log group of the build")
    parser.option(
        "--egress-allow",
        metavar="HOST[:PORT]",
        repeat=True,
        help="with --local: what RUN steps may reach; internet for everything public (repeatable; default: internet)",
    )
    parser.switch("--wait", help="wait until it is built (the default)")
    parser.switch("--no-wait", help="return once the build has begun")


def _add_own_options(parser: words.Parser, action: str) -> None:
    if action == "ls":
        parser.switch("--managed", help="the service's own images, which images are built on")
    if action in ("inspect", "logs", "rm"):
        default = {"inspect": "the newest that can run", "logs": "the newest", "rm": "all of them"}[action]
        parser.option("--image-version", metavar="VERSION", help=f"one version (default: {default})")
    if action == "rm":
        parser.switch("--no-wait", help="return once the deletion has begun")
    if action == "prune":
        parser.switch("--versions", help="also old versions of the images that stay")
        parser.switch("--dry-run", help="only say what would go")
        parser.switch("-y", "--yes", help="do not ask")


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Do it."""
    if isinstance(options, _BuildOptions):
        _build(options)
        return 0
    assert isinstance(options, _ImageOptions)
    actions: dict[str, Callable[[_ImageOptions], int | None]] = {
        "init": _init,
        "ls": _list,
        "inspect": _inspect,
        "versions": _versions,
        "logs": _logs,
        "rm": _remove,
        "prune": _prune,
    }
    return actions[verb.words[1]](options) or 0


# -- build -------------------------------------------------------------------------------------------------------------


class _Shown:
    """Shows a build on its way; a ``builds.Front``."""

    def __init__(self, board: infra_progress.Board) -> None:
        self._board = board
        self._told = 0
        self.has_begun = False

    def on_remark(self, text: str) -> None:
        """A line that stays."""
        self._tell("note", text, about="")

    def on_upload(self, done: int, total: int) -> None:
        """How much is uploaded, in steps that are worth telling."""
        if done >= total or done - self._told >= _STEP_BYTES:
            from .meter import render_size

            self._told = done
            self._tell("progress", f"uploaded {render_size(done)} of {render_size(total)}")

    def on_state(self, text: str) -> None:
        """How far the build is."""
        self.has_begun = True
        self._tell("progress", text)

    def _tell(self, phase: str, text: str, *, about: str = "image") -> None:
        from ..infra.steps import Event

        self._board.on_event("", Event("", about, phase, text))


def _build(options: _BuildOptions) -> None:
    for one, other in (("hooks", "no_hooks"), ("wait", "no_wait")):
        if getattr(options, one) and getattr(options, other):
            raise errors.UsageError(f"--{one} and --no-{one} contradict each other", hint="Give one of them.")
    is_shown = not options.quiet and not options.json
    with (
        output.warnings_as_remarks(options=options),
        infra_progress.Board(shown=is_shown) as board,
    ):
        shown = _Shown(board)
        try:
            data = builds.build_image(
                directory=options.names[0] if options.names else None,
                wish=_wish(options),
                wait=not options.no_wait,
                local=options.local or None,
                region=options.region,
                timeout=options.timeout or builds.BUILD_SECONDS,
                front=shown,
            )
        except (KeyboardInterrupt, failure.Ended):
            if shown.has_begun:
                shown.on_remark("the build goes on without us; vmnest image versions tells what became of it")
            raise
    output.result(data, options=options, text=f"{render.to_printable(data['image_arn'])}\n")
    done = "being built" if options.no_wait else "built"
    output.remark(f"version {data['image_version']} of {data['name']} is {done}", options=options)


def _wish(options: _BuildOptions) -> builds.Wish:
    hooks = True if options.hooks else False if options.no_hooks else None
    return builds.Wish(
        name=options.name,
        bucket=options.bucket,
        role=options.role,
        memory=options.memory,
        environment=variables.resolve(
            options.env or (),
            secrets=options.secret or (),
            files=options.env_file or (),
            environ=settings.environment(),
        ),
        hooks=hooks,
        base_image=options.base_image,
        base_image_version=options.base_image_version,
        capabilities=options.all_capabilities,
        log_group=options.log_group,
        egress_allow=options.egress_allow,
        description=options.description,
    )


# -- init --------------------------------------------------------------------------------------------------------------


def _init(options: _ImageOptions) -> None:
    data = builds.init_image(directory=options.names[0] if options.names else None)
    where = render.to_printable(data["directory"])
    output.result(data, options=options, text=f"{where}\n")
    output.remark(f"change its Dockerfile as you like, then: vmnest image build {where} -n NAME", options=options)


# -- the others --------------------------------------------------------------------------------------------------------


_COLUMNS = (
    "NAME",
    tables.Column("STATE", colours=tables.STATE_COLOURS),
    "ACTIVE",
    tables.Column("FAILED", rank=1),
    "AGE",
    tables.Column("ARN", rank=2),
)
_MANAGED_COLUMNS = ("NAME", "VERSIONS", tables.Column("ARN", rank=1))
_VERSION_COLUMNS = (
    "VERSION",
    tables.Column("STATE", colours=tables.STATE_COLOURS),
    tables.Column("STATUS", colours=tables.STATE_COLOURS),
    tables.Column("MEMORY", rank=1, right=True),
    "AGE",
    "REASON",  # whatever the room: it is what one looks for
)


def _list(options: _ImageOptions) -> None:
    with output.progress("asking for the images", options=options):
        data = images.image_list(
            managed=options.managed,
            local=options.local or None,
            region=options.region,
            timeout=options.timeout or images.ASK_SECONDS,
        )
    found = members.items(data, "images")
    rows = [_managed_row(each) if options.managed else _row(each) for each in found]
    columns = _MANAGED_COLUMNS if options.managed else _COLUMNS
    output.result(data, options=options, text=output.table(columns, rows) if rows else "")
    if not rows:
        output.remark("there are no images", options=options)


def _row(image: Mapping[str, object]) -> tuple[object, ...]:
    return (
        image["name"],
        image["state"],
        image["latest_active_version"],
        image["latest_failed_version"],
        render.render_age_since(image["created_at"]),
        image["image_arn"],
    )


def _managed_row(image: Mapping[str, object]) -> tuple[object, ...]:
    versions = ", ".join(str(each["image_version"]) for each in members.items(image, "versions"))
    return (image["name"], versions or None, image["image_arn"])


def _inspect(options: _ImageOptions) -> None:
    with output.progress(f"asking for {options.names[0]}", options=options):
        data = images.image_inspect(
            image=options.names[0],
            image_version=options.image_version,
            local=options.local or None,
            region=options.region,
            timeout=options.timeout or images.ASK_SECONDS,
        )
    output.result(data, options=options, text=render.render_json(data, indented=True))


def _versions(options: _ImageOptions) -> None:
    with output.progress(f"asking for {options.names[0]}", options=options):
        data = images.image_versions(
            image=options.names[0],
            local=options.local or None,
            region=options.region,
            timeout=options.timeout or images.ASK_SECONDS,
        )
    rows = [
        (
            each["image_version"],
            each["state"],
            each["status"],
            f"{each['memory']} MiB" if each["memory"] else None,
            render.render_age_since(each["created_at"]),
            each["state_reason"],
        )
        for each in members.items(data, "versions")
    ]
    output.result(data, options=options, text=output.table(_VERSION_COLUMNS, rows))


def _logs(options: _ImageOptions) -> None:
    with output.progress(f"reading the log of {options.names[0]}", options=options):
        data = builds.read_build_log(
            image=options.names[0],
            image_version=options.image_version,
            local=options.local or None,
            region=options.region,
            timeout=options.timeout or builds.ASK_SECONDS,
        )
    lines = [line for each in members.items(data, "lines") for line in str(each["message"]).splitlines()]
    output.result(data, options=options, text="".join(f"{render.to_printable(line)}\n" for line in lines))
    if not lines:
        output.remark(
            f"nothing is logged of version {data['image_version']} ({data['state']}) in {data['log_group']}",
            options=options,
        )


def _remove(options: _ImageOptions) -> None:
    names: list[str] = []

    def remove(name: str) -> dict[str, object]:
        with output.progress(f"deleting {name}", options=options):
            removed = images.image_remove(
                image=name,
                image_version=options.image_version,
                wait=not options.no_wait,
                local=options.local or None,
                region=options.region,
                timeout=options.timeout or images.REMOVE_SECONDS,
            )
        names.append(name)
        return removed

    answers, failed = batch.attempt(remove, options.names, options=options)
    text = "".join(f"{render.to_printable(name)}\n" for name in names)
    batch.conclude(answers, failed, options=options, done="images", text=text)


def _prune(options: _ImageOptions) -> int:
    """1 if something could not be removed."""
    with output.progress("looking which images are in use", options=options):
        planned = images.plan_prune(
            versions=options.versions,
            local=options.local or None,
            region=options.region,
            timeout=options.timeout or images.ASK_SECONDS,
        )
    found = members.items(planned, "images")
    shown = "".join(f"{_title(each)}\n" for each in found)
    if options.dry_run or not found:
        output.result(
            {**planned, "dry_run": True} if options.dry_run else {**planned, "failed": []}, options=options, text=shown
        )
        output.remark("nothing was removed" if found else "there is nothing to remove", options=options)
        return 0
    if not options.yes:
        asking.agree(
            shown,
            question="Delete these?",
            refusal=f"this would delete {len(found)} image{'s' if len(found) > 1 else ''} or versions",
            options=options,
        )
    with output.progress("deleting images", options=options):
        data = images.image_prune(
            versions=options.versions,
            only=found,
            local=options.local or None,
            region=options.region,
            timeout=options.timeout or images.REMOVE_SECONDS,
        )
    output.result(data, options=options, text="".join(f"{_title(each)}\n" for each in members.items(data, "images")))
    for each in members.items(data, "failed"):
        error = each["error"]
        assert isinstance(error, dict)
        output.remark(f"{_title(each)} is still there: {error['message']}", options=options)
    return 1 if members.items(data, "failed") else 0


def _title(each: Mapping[str, object]) -> str:
    version = each.get("image_version")
    return render.to_printable(f"{each['name']} {version}" if version else str(each["name"]))
