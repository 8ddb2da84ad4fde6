"""Every verb of the command line with its one-line description; where it lives is loaded on use only."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .words import Parser

__all__ = [
    "COMPLETE",
    "GLOBAL_OPTIONS",
    "GROUPS",
    "OTHER_WORDS",
    "VERBS",
    "WITHOUT_TARGET",
    "Found",
    "Verb",
    "build_parser",
    "find",
    "in_group",
    "look_for",
]

COMPLETE = "--complete"  # for shells alone, and the first word of all: see ``completing``

# First words of commands that are about no target, about a certain one, or about settings themselves.
WITHOUT_TARGET = frozenset({"completion", "doctor", "local", "mcp", "version"})

# What every verb has: spellings, what the value is called (a switch has none), and the meaning.
GLOBAL_OPTIONS = (
    (("--local",), "", "work on this machine instead of AWS"),
    (("--region",), "REGION", "AWS region"),
    (("--json",), "", "print one JSON object; an error goes to stderr as one too"),
    (("-q", "--quiet"), "", "print results only: no progress, no remarks"),
    (("--debug",), "", "show a traceback with an error"),
)


class Verb:
    """A row of the table.

    Attributes:
        words: What the user types: ``("create",)`` or ``("local", "up")``.
        module: The module of ``cli`` that holds its ``Command``.
        summary: The line in ``--help``.
        is_exec: It runs a command in a sandbox, and its exit status is that command's.
    """

    __slots__ = ("is_exec", "module", "summary", "words")

    def __init__(self, words: str, module: str, summary: str, *, is_exec: bool = False) -> None:
        self.words = tuple(words.split())
        self.module = module
        self.summary = summary
        self.is_exec = is_exec

    @property
    def title(self) -> str:
        """The verb as the user types it."""
        return " ".join(self.words)


VERBS = (
    Verb("create", "creation", "Make a sandbox and wait until it runs"),
    Verb("run", "commands", "Run a command in a sandbox of its own, and remove that afterwards", is_exec=True),
    Verb("exec", "commands", "Run a command in a sandbox", is_exec=True),
    Verb("shell", "shell", "Open a shell in a sandbox", is_exec=True),
    Verb("jobs", "jobs", "List what runs in a sandbox, and what has ended in its background"),
    Verb("attach", "jobs", "Show the output of a command that runs in a sandbox, from its beginning on", is_exec=True),
    Verb("kill", "jobs", "Send a signal to a command that runs in a sandbox"),
    Verb("forward", "forwarding", "Forward ports of this machine to ports of a sandbox"),
    Verb("logs", "logs", "Print what a sandbox has logged, also one that has ended"),
    Verb("cp", "copying", "Copy files and directories into a sandbox, out of one, or between two"),
    Verb("ls", "inventory", "List the sandboxes and the state of each"),
    Verb("ps", "sandboxes", "Show one sandbox's state"),
    Verb("inspect", "sandboxes", "Show all that is known of one sandbox, as JSON"),
    Verb("metrics", "metrics", "Show what sandboxes use: CPU, memory, disk, network, processes"),
    Verb("stop", "lifecycle", "Suspend sandboxes: frozen with memory and disk"),
    Verb("start", "lifecycle", "Resume sandboxes that are suspended"),
    Verb("wait", "lifecycle", "Wait until a sandbox has ended, or is in another state"),
    Verb("rm", "removal", "End sandboxes and forget their names"),
    Verb("prune", "removal", "Forget the names of sandboxes that have ended, and end old ones"),
    Verb("adopt", "adoption", "Give a MicroVM that has no name here one"),
    Verb("cost", "cost", "Estimate what sandboxes cost"),
    Verb("fs ls", "fs", "List the files in a sandbox"),
    Verb("fs cat", "fs", "Write files of a sandbox to standard output"),
    Verb("fs stat", "fs", "Show type, size, permissions and time of files in a sandbox"),
    Verb("fs write", "fs", "Write standard input to a file in a sandbox"),
    Verb("fs mkdir", "fs", "Make directories in a sandbox"),
    Verb("fs cp", "fs", "Copy files and directories within a sandbox"),
    Verb("fs mv", "fs", "Move or rename files and directories in a sandbox"),
    Verb("fs rm", "fs", "Remove files and directories in a sandbox"),
    Verb("fs chmod", "fs", "Change the permissions of files in a sandbox"),
    Verb("image init", "images", "Write vmnest's agent and a Dockerfile into a new directory to begin with"),
    Verb("image build", "images", "Build an image of a directory with a Dockerfile"),
    Verb("image ls", "images", "List images"),
    Verb("image inspect", "images", "Show all that is known of an image, as JSON"),
    Verb("image versions", "images", "List the versions of an image, failed ones included"),
    Verb("image logs", "images", "Print what was logged while an image was built"),
    Verb("image rm", "images", "Delete images, or a version of one"),
    Verb("image prune", "images", "Delete images that nothing is started from any more"),
    Verb("infra init", "infra", "Write a commented sandbox.yaml to begin with"),
    Verb("infra preview", "infra", "Show what infra up would do, and why"),
    Verb("infra up", "infra", "Make the infrastructure, or bring it up to date, and print its outputs"),
    Verb("infra refresh", "infra", "Bring the record of the infrastructure up to date with the account"),
    Verb("infra destroy", "infra", "Remove the infrastructure that infra up made"),
    Verb("infra output", "infra", "Print the outputs of the infrastructure, or one of them"),
    Verb("local up", "local", "Start the local cloud (it also starts by itself on first use)"),
    Verb("local down", "local", "Stop the local cloud"),
    Verb("local status", "local", "Show whether the local cloud runs, and what isolates its sandboxes"),
    Verb("local env", "local", "Print shell lines that lead boto3 or the AWS CLI to the local cloud"),
    Verb("mcp", "mcp", "Serve sandboxes to AI agents as tools, and show how hosts are told of it"),
    Verb("completion", "completion", "Print what makes a shell complete vmnest's command lines"),
    Verb("doctor", "doctor", "Look whether all that sandboxes need is there, and say what to do"),
    Verb("version", "version", "Show the version of vmnest"),
)

GROUPS = {
    "fs": "The files of a sandbox, looked at and changed where they are",
    "image": "Images, which sandboxes start from",
    "infra": "Infrastructure: the image, the role and the bucket that sandboxes need, from sandbox.yaml",
    "local": "The local cloud: sandboxes on this machine",
}

# What people call them elsewhere -> the verb that an error may point to, with what follows it where that matters.
OTHER_WORDS = {
    **dict.fromkeys(("suspend", "pause", "freeze"), "stop"),
    **dict.fromkeys(("resume", "unpause", "thaw"), "start"),
    **dict.fromkeys(("remove", "delete", "destroy", "terminate"), "rm"),
    **dict.fromkeys(("clean", "cleanup", "gc"), "prune"),
    **dict.fromkeys(("claim", "import"), "adopt"),
    "list": "ls",
    "show": "ps",
    "describe": "inspect",
    "new": "create",
    **dict.fromkeys(("ssh", "sh", "console", "login"), "shell"),
    **dict.fromkeys(("upload", "download", "put", "push", "pull", "copy", "scp"), "cp"),
    "log": "logs",
    "top": "metrics NAME --watch",
    **dict.fromkeys(("stats", "usage"), "metrics"),
    **dict.fromkeys(("costs", "price", "prices", "bill", "billing"), "cost"),
    **dict.fromkeys(("check", "diagnose", "diagnostics"), "doctor"),
    **dict.fromkeys(("fs remove", "fs delete"), "fs rm"),
    **dict.fromkeys(("fs move", "fs rename"), "fs mv"),
    "fs list": "fs ls",
    "fs read": "fs cat",
    "fs copy": "fs cp",
    **dict.fromkeys(("image list", "images"), "image ls"),
    **dict.fromkeys(("image remove", "image delete"), "image rm"),
    **dict.fromkeys(("image show", "image describe"), "image inspect"),
    **dict.fromkeys(("image create", "image update", "build"), "image build"),
    "image new": "image init",
    **dict.fromkeys(("infra plan", "infra diff"), "infra preview"),
    **dict.fromkeys(("infra apply", "infra deploy", "infra create"), "infra up"),
    **dict.fromkeys(("infra down", "infra delete", "infra rm"), "infra destroy"),
    **dict.fromkeys(("infra outputs", "infra ls", "infra list"), "infra output --all"),
    "local start": "local up",
    "local stop": "local down",
}


def find(words: tuple[str, ...]) -> Verb | None:
    """The verb of exactly these words, or None."""
    return next((verb for verb in VERBS if verb.words == words), None)


def in_group(group: str) -> Iterator[Verb]:
    """The verbs of a group."""
    return (verb for verb in VERBS if len(verb.words) > 1 and verb.words[0] == group)


class Found:
    """What the beginning of a command line names.

    Attributes:
        verb: The verb, or None.
        words: The words that were taken for it.
        before: The options before it.
        rest: What follows.
    """

    __slots__ = ("before", "rest", "verb", "words")

    def __init__(self, line: Sequence[str]) -> None:
        self.verb: Verb | None = None
        self.words: list[str] = []
        self.before: list[str] = []
        self.rest = list(line)


def look_for(line: Sequence[str]) -> Found:
    """Find the verb in a command line, where options may stand before it and in it."""
    found = Found(line)
    while found.rest and found.verb is None and found.rest[0] != "--":
        word = found.rest.pop(0)
        if word.startswith("-"):
            found.before.append(word)
            if word == "--region" and found.rest:
                found.before.append(found.rest.pop(0))
            continue
        found.words.append(word)
        found.verb = find(tuple(found.words))
        if found.verb is None and (len(found.words) > 1 or word not in GROUPS):
            break
    return found


def build_parser(verb: Verb) -> Parser:
    """The verb's own options and names, for whoever describes them."""
    from importlib import import_module

    parser: Parser = import_module(f".{verb.module}", __package__).build_parser(verb)
    return parser
