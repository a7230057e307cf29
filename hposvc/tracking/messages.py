"""Messages about the moments of a sweep: their text, and their forms for each kind of channel.

Names of sweeps, metrics and trials come from users, so no text has a line break or another control
character (in a subject it would begin another header), and services get no markup and no mentions.
"""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from hposvc.events import Alerted, Event, Finished, MomentKind, Suspended
from hposvc.journal.journal import SweepRow
from hposvc.spec.notify import Channel, Moment
from hposvc.state.summary import trial_values
from hposvc.state.sweep import SweepState

VERSION = 1  # of the JSON body
LONGEST = 500  # characters of a text
PING = re.compile(r"@(?=\w)")
HARMLESS = str.maketrans("<>", "‹›")
NO_BREAK = "\u2060"  # a word joiner: invisible, and the word after an @ is no name any more


@dataclass(frozen=True)
class Message:
    """A message about a moment of a sweep; `id` is the same at each attempt to send it."""

    id: str
    what: MomentKind | str  # "test": of hposvc notify
    sweep: str
    name: str
    project: str
    time: float  # seconds since the epoch
    text: str
    state: str = ""  # of the sweep
    trial: str | None = None
    metric: str | None = None
    value: float | None = None

    def json(self) -> dict[str, object]:
        """Return the body of a webhook."""
        return {"version": VERSION, **asdict(self)}

    @property
    def title(self) -> str:
        """The first line for a service of apprise."""
        return harmless(f"[hposvc] {self.sweep}: {self.text}")

    @property
    def details(self) -> str:
        """The lines below the title."""
        details = {"sweep": self.sweep, "project": self.project, "state": self.state}
        lines = [f"{key}: {value}" for key, value in details.items() if value]
        return harmless("\n".join([*lines, f"look: hposvc status {self.sweep}"]))


def harmless(text: str) -> str:
    """Return a text in which no service finds markup or a mention."""
    return PING.sub(f"@{NO_BREAK}", text).translate(HARMLESS)


def plain(text: str, longest: int = LONGEST) -> str:
    """Return a text on one line, without control characters, cut to its longest."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    words = " ".join(printable.split())
    return words if len(words) <= longest else f"{words[: longest - 1]}…"


def moment_of(event: Event) -> Moment | None:
    """Return the moment that an event is; None: nobody asks for such an event."""
    match event:
        case Alerted():
            return Moment(event.what, event.at)
        case Finished():
            return Moment("failed" if event.state == "FAILED" else "done")
        case Suspended() if event.reason != "user":
            return Moment("stalled")  # a full disk: it goes on when somebody has freed some
    return None


def asks_for(channel: Channel, moment: Moment) -> bool:
    """Return whether a channel is told of a moment; one without a threshold fits any."""
    return moment in channel.moments or (
        moment.at == 0 and any(asked.what == moment.what for asked in channel.moments)
    )


def compose(row: SweepRow, state: SweepState, seq: int, event: Event) -> Message:
    """Return the message about an event that is a moment.

    Args:
        state: after the event.
        seq: the event's number.
    """
    moment = moment_of(event)
    assert moment is not None
    offset_s = row.created if state.spec.engine.traits.simulated else 0.0  # a clock of its own
    trial, value = state.best, None
    if isinstance(event, Alerted):
        trial, value = event.trial, event.value
    elif trial is not None:
        value = state.trials[trial].value
    return Message(
        id=f"{row.id}.{row.created:.0f}.{seq}",
        what=moment.what,
        sweep=row.id,
        name=plain(row.name),
        project=plain(row.project),
        time=round(offset_s + event.time, 3),
        text=plain(event.text if isinstance(event, Alerted) else "; ".join(_ending(state, event))),
        state=state.state,
        trial=trial,
        metric=None if state.spec.several else plain(state.spec.objectives[0].name),
        value=value,
    )


def _ending(state: SweepState, event: Event) -> Iterator[str]:
    """Yield the parts of the text about the end or the pause of a sweep."""
    if isinstance(event, Suspended):
        yield f"paused: {event.reason}; {state.full or 'no room to write'}"
        yield "free some, then hposvc resume goes on"
        return
    reason = state.end_detail or state.reason
    yield f"{state.state}{f': {reason}' if reason else ''}"
    if state.best is not None:
        trial = state.trials[state.best]
        if trial.value is not None:
            yield f"best {trial_values(trial)}, {trial.id}"
    elif state.front:
        yield f"{len(state.front)} trials on the front"
    counts = {phase: count for phase, count in state.trials.counts.items() if count > 0}
    parts = ", ".join(f"{count} {phase.lower()}" for phase, count in sorted(counts.items()))
    yield f"{len(state.trials)} trials{f': {parts}' if parts else ''}"
