"""Which sandboxes there are: those that have a name here with the state of each, and what has none."""

from __future__ import annotations

from .. import daemon, errors, registry, rendezvous, settings
from .. import target as targets
from ..deadline import Deadline
from . import crowd, views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ..control import Control
    from ..control.microvms import MicroVMSummary
    from ..registry import Record

__all__ = ["Place", "failures", "image_name", "list_sandboxes", "survey"]

ASK_SECONDS = 30.0
# So many sandboxes of one place are asked for one by one; for more of them the place's list is read.
MOST_SINGLE = 10
# So much of a list is read in search of those that have a name: MicroVMs that ended stay in it for hours or longer.
MOST_LISTED = 2000


def list_sandboxes(
    *,
    labels: Mapping[str, str] | None = None,
    states: Sequence[str] | None = None,
    images: Sequence[str] | None = None,
    unnamed: bool = False,
    local: bool | None = None,
    region: str | None = None,
    timeout: float = ASK_SECONDS,
) -> dict[str, object]:
    """List the sandboxes with the state of each. A service that cannot be asked makes a state UNKNOWN, not an error.

    Of more than ten in one place the list of that place is read, which does not tell everything: what neither it nor
    the record tells is null.

    Args:
        labels: Only those that have all of these labels.
        states: Only those in one of these states, which may also be LAUNCHING, GONE or UNKNOWN.
        images: Only those that were started from one of these images, which are ARNs or names.
        unnamed: Also the MicroVMs that have no name here. Those that have ended are left out unless ``states`` has
            their state. A place that cannot be asked is told in ``failed``, or in ``left_out`` if it is not set up
            here and nobody has chosen it; it is an error if none can.
        local: True: only those on this machine; False: only those on AWS.
        region: Only those in this AWS region.
        timeout: Seconds that asking may take.
    """
    shown = frozenset(states or ())
    places, found = survey(
        labels=labels, images=images, unnamed=unnamed, ended=shown, local=local, region=region, timeout=timeout
    )
    if shown:
        found = [each for each in found if each["state"] in shown]
    failed, left_out = failures(places) if unnamed else ([], [])
    return {
        "sandboxes": found,
        **({"failed": failed} if failed else {}),
        **({"left_out": left_out} if left_out else {}),
    }


def failures(places: Sequence[Place]) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Of places whose lists were to be read: those that failed, and those that are not set up and nobody has chosen."""
    troubled = [place for place in places if place.failure is not None]
    return (
        [place.to_failure() for place in troubled if not place.is_not_set_up],
        [place.to_failure() for place in troubled if place.is_not_set_up],
    )


def survey(
    *,
    labels: Mapping[str, str] | None = None,
    images: Sequence[str] | None = None,
    unnamed: bool = False,
    ended: Collection[str] = (),
    local: bool | None = None,
    region: str | None = None,
    timeout: float = ASK_SECONDS,
) -> tuple[list[Place], list[dict[str, object]]]:
    """The places that were asked, and the sandboxes; see ``list_sandboxes``.

    Args:
        labels, images, unnamed, local, region, timeout: As there.
        ended: States of MicroVMs that have ended, and are to be among those that have no name.
    """
    deadline = Deadline(timeout)
    controls = views.Controls(region=region, deadline=deadline)
    recorded = registry.open_default().all()
    records = [
        record
        for record in recorded
        if record.is_within(local, region)
        and (labels or {}).items() <= record.labels.items()
        and (record.image_arn is None or _is_of(record.image_arn, images))
    ]
    places = _places(records, controls)
    if unnamed and not labels:
        _add_default_places(places, local=local, region=region, deadline=deadline)
    _read_lists([*places.values()], whole=unnamed, deadline=deadline)
    found = _look(records, places, controls=controls, deadline=deadline)
    if unnamed:
        if places and all(place.failure is not None for place in places.values()) and not records:
            raise next(place.failure for place in places.values() if place.failure is not None)
        if not labels:
            found += _unnamed([*places.values()], known={record.microvm_id for record in recorded}, ended=ended)
    # Some records do not tell the image: only now it is known of these, too.
    return [*places.values()], [each for each in found if _is_of(each["image_arn"], images)]


def image_name(image_arn: object) -> str | None:
    """The name of an image: the last part of its ARN."""
    return image_arn.rpartition(":")[2] if isinstance(image_arn, str) else None


def _is_of(image_arn: object, images: Sequence[str] | None) -> bool:
    return not images or any(image in (image_arn, image_name(image_arn)) for image in images)


class Place:
    """Where MicroVMs are, and what is found there.

    Attributes:
        target: ``aws`` or ``local``.
        region: The region, if it is known.
        control: The control plane; or what kept it from being reached.
        records: Those of which MicroVMs are there.
        listed: What the place's list tells, by the id; the list may have been read in part, or not at all.
        failure: What kept the list from being read, if it was to be read.
        is_chosen: Somebody wants it asked: a record, an option or a setting.
    """

    __slots__ = ("control", "failure", "is_chosen", "listed", "records", "region", "target")

    def __init__(self, target: str, *, region: str | None, control: Control | errors.VmnestError) -> None:
        self.target = target
        self.region = region
        self.control = control
        self.records: list[Record] = []
        self.listed: dict[str, MicroVMSummary] = {}
        self.failure: errors.VmnestError | None = control if isinstance(control, errors.VmnestError) else None
        self.is_chosen = True

    @property
    def is_not_set_up(self) -> bool:
        """Nobody uses it: it would be asked by default, and lacks what each of its uses takes."""
        kinds = (errors.RegionNotFoundError, errors.CredentialsNotFoundError)
        return not self.is_chosen and isinstance(self.failure, kinds)

    def to_failure(self) -> dict[str, object]:
        """Why it could not be asked."""
        assert self.failure is not None
        return {"target": self.target, "region": self.region, "error": self.failure.to_wire()}

    def read_list(self, *, whole: bool, deadline: Deadline) -> None:
        """Read the list; unless all of it is wanted, as far as it takes to find what is recorded."""
        if isinstance(self.control, errors.VmnestError):
            return
        missing = {record.microvm_id for record in self.records}
        try:
            for number, summary in enumerate(self.control.microvms.list(deadline=deadline)):
                self.listed[summary.microvm_id] = summary
                missing.discard(summary.microvm_id)
                if not whole and (not missing or number + 1 >= MOST_LISTED):
                    return
        except errors.VmnestError as error:
            self.failure = error


_Places = dict[tuple[str, str | None], Place]


def _places(records: Sequence[Record], controls: views.Controls) -> _Places:
    """Where the records' MicroVMs are."""
    places: _Places = {}
    for record in records:
        if record.microvm_id is None:
            continue
        key = controls.place(record)
        if key not in places:
            control = controls.try_reach(record)
            region = None if isinstance(control, errors.VmnestError) else control.region
            places[key] = Place(record.target, region=region or record.region, control=control)
        places[key].records.append(record)
    return places


def _add_default_places(places: _Places, *, local: bool | None, region: str | None, deadline: Deadline) -> None:
    """Where sandboxes would be made, and this machine if there are any on it."""
    environ = settings.environment()
    if local is None and region is not None:
        local = False
    wanted = [settings.is_local(local, environ=environ)]
    if wanted == [False] and local is None and _has_local_cloud():
        wanted.append(True)
    is_chosen = local is not None or settings.resolve("target", environ=environ).source != "default"
    present = {(place.target, place.region) for place in places.values()}
    for is_local in wanted:
        kind = settings.TARGET_LOCAL if is_local else settings.TARGET_AWS
        try:
            place = targets.resolve(local=is_local, region=region, environ=environ)
            if (kind, place.region) in present:
                continue
            made: Control | errors.VmnestError = place.control(deadline=deadline, start=False)
            added = places[kind, place.region] = Place(kind, region=place.region, control=made)
        except errors.VmnestError as error:
            added = places[kind, None] = Place(kind, region=region, control=error)
        added.is_chosen = is_chosen


def _has_local_cloud() -> bool:
    """It runs, or was killed and left sandboxes. It is not started to say that it has none."""
    environ = settings.environment()
    try:
        return daemon.find(environ) is not None or rendezvous.has_vms(rendezvous.folder(environ))
    except errors.UnsupportedError:
        return False


def _read_lists(places: Sequence[Place], *, whole: bool, deadline: Deadline) -> None:
    wanted = [place for place in places if whole or len(place.records) > MOST_SINGLE]
    crowd.map_parallel(lambda place: place.read_list(whole=whole, deadline=deadline), wanted)


def _look(
    records: Sequence[Record], places: _Places, *, controls: views.Controls, deadline: Deadline
) -> list[dict[str, object]]:
    """What is known of each record: as a list tells, else as the service answers."""
    look = views.Look(region=None, deadline=deadline, controls=controls)
    found: dict[str, dict[str, object]] = {}
    single: list[Record] = []
    for record in records:
        place = None if record.microvm_id is None else places[controls.place(record)]
        summary = None if place is None else place.listed.get(record.microvm_id or "")
        if summary is not None:
            found[record.name] = views.describe_summary(record, summary)
        elif place is not None and place.failure is not None and not _may_ask_singly(place.failure):
            found[record.name] = views.describe_unknown(record, place.failure)
        else:
            single.append(record)
    asked = crowd.map_parallel(look.at, single)
    found.update(zip((record.name for record in single), asked, strict=True))
    for record in records:
        if record.microvm_id is not None and found[record.name]["region"] is None:  # not recorded, but looked for here
            found[record.name]["region"] = places[controls.place(record)].region
    return [found[record.name] for record in records]


def _may_ask_singly(failure: errors.VmnestError) -> bool:
    """Who may not list them may well look at one, which is another action; of a list that is nonsense, one may be none.

    All else would fail again.
    """
    return isinstance(failure, (errors.AccessDeniedError, errors.AnswerInvalidError))


def _unnamed(
    places: Sequence[Place], *, known: Collection[str | None], ended: Collection[str]
) -> list[dict[str, object]]:
    """What the lists have and no record, each once, the oldest first."""
    found: dict[str, tuple[Place, MicroVMSummary]] = {}
    for place in places:
        for microvm_id, summary in place.listed.items():
            if microvm_id not in known and (not summary.ended or summary.state in ended):
                found.setdefault(microvm_id, (place, summary))
    oldest_first = sorted(found.values(), key=lambda each: each[1].started_at)
    return [_describe_unnamed(place, summary) for place, summary in oldest_first]


def _describe_unnamed(place: Place, summary: MicroVMSummary) -> dict[str, object]:
    record = registry.Record("", target=place.target, region=place.region)
    return {**views.describe_summary(record, summary), "name": None}
