"""``create``, ``ls``, ``ps``, ``rm``."""

from __future__ import annotations

from .. import errors, settings
from ..ops import sandboxes
from . import output, render, values, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import verbs

__all__ = ["CreateOptions", "add_create_options", "build_parser", "run"]


class CreateOptions(words.Options):
    """What says which sandbox to make (also for ``run``)."""

    image: str | None
    image_version: str | None
    role: str | None
    cpus: float | None
    memory: int | None
    wait_timeout: float | None


def add_create_options(parser: words.Parser) -> None:
    """Add them."""
    parser.option("-i", "--image", metavar="IMAGE", help="image to start from: ARN or name")
    parser.option("--image-version", metavar="VERSION", help="version of the image (default: its newest)")
    parser.option("--role", metavar="ARN", help="role that code in the sandbox gets")
    parser.option("--cpus", metavar="N", kind=values.parse_cpus, help="CPUs that the sandbox needs")
    parser.option(
        "-m", "--memory", metavar="MIB", kind=values.parse_memory, help="memory that the sandbox needs: 2048, 2GiB"
    )
    parser.option(
        "--wait-timeout",
        metavar="SECONDS",
        kind=values.parse_seconds,
        help="how long to wait for the sandbox to run (default: 120)",
    )


_NAMES = {"create": "NAME", "ls": "", "ps": "NAME", "rm": "NAME..."}


def build_parser(verb: verbs.Verb) -> words.Parser:
    """The verb's options."""
    kind = CreateOptions if verb.title == "create" else words.Options
    parser = words.Parser(verb.title, summary=verb.summary, names=_NAMES[verb.title], options=kind)
    if verb.title == "create":
        add_create_options(parser)
    return parser


def run(verb: verbs.Verb, options: words.Options) -> int:
    """Do it."""
    output.remark_unusual_place(options=options)
    {"create": _create, "ls": _list, "ps": _show, "rm": _remove}[verb.title](options)
    return 0


def _create(options: words.Options) -> None:
    assert isinstance(options, CreateOptions)
    (name,) = options.names
    with output.warnings_as_remarks(options=options), output.progress(f"starting {name}", options=options):
        data = sandboxes.create_sandbox(
            name=name,
            image=options.image,
            image_version=options.image_version,
            role=options.role,
            cpus=options.cpus,
            memory=options.memory,
            wait_timeout=options.wait_timeout,
            local=options.local or None,
            region=options.region,
        )
    output.result(data, options=options, text=f"{render.to_printable(data['name'])}\n")


def _list(options: words.Options) -> None:
    with output.progress("asking for the states", options=options):
        data = sandboxes.list_sandboxes(local=options.local or None, region=options.region)
    listed = data["sandboxes"]
    assert isinstance(listed, list)
    rows = [_row(each) for each in listed]
    output.result(data, options=options, text=render.render_table(_HEADS, rows) if rows else "")
    if not rows:
        output.remark("there are no sandboxes", options=options)
    for message in dict.fromkeys(str(each["error"]["message"]) for each in listed if "error" in each):
        output.remark(message, options=options)


_HEADS = ("NAME", "STATE", "TARGET", "REGION", "AGE", "MICROVM")


def _row(sandbox: dict[str, object]) -> tuple[object, ...]:
    age = _age(sandbox["started_at"] or sandbox["created_at"])
    region = None if sandbox["target"] == settings.TARGET_LOCAL else sandbox["region"]
    return (sandbox["name"], sandbox["state"], sandbox["target"], region, age, sandbox["microvm_id"])


def _age(moment: object) -> str | None:
    if not isinstance(moment, str):
        return None
    from datetime import datetime, timezone

    started = datetime.fromisoformat(moment.replace("Z", "+00:00"))
    return render.render_age((datetime.now(timezone.utc) - started).total_seconds())


def _show(options: words.Options) -> None:
    (name,) = options.names
    with output.progress(f"asking for {name}", options=options):
        data = sandboxes.show_sandbox(name=name, local=options.local or None, region=options.region)
    plain = [(member.replace("_", " "), value) for member, value in data.items() if not isinstance(value, dict)]
    details = data.get("local_details")
    if isinstance(details, dict):
        plain += [(member, value) for member, value in details.items() if isinstance(value, (str, int, float))]
    output.result(data, options=options, text=render.render_members(plain))


def _remove(options: words.Options) -> None:
    removed: list[dict[str, object]] = []
    failed: list[errors.VmnestError] = []
    for name in dict.fromkeys(options.names):
        try:
            with output.progress(f"ending {name}", options=options):
                removed.append(sandboxes.remove_sandbox(name=name, local=options.local or None, region=options.region))
        except errors.VmnestError as error:
            failed.append(error)
    if not failed or not options.json:
        text = "".join(f"{render.to_printable(each['name'])}\n" for each in removed)
        output.result({"removed": removed}, options=options, text=text)
    for each in removed:
        if not each["was_there"]:
            output.remark(f"the MicroVM of {each['name']} was gone already", options=options)
    if failed:
        # All were tried; with --json, where only the error is printed, its details tell which are gone.
        failed[0].details["removed"] = [each["name"] for each in removed]
        for other in failed[1:]:
            output.remark(other.message, options=options)
        raise failed[0]
