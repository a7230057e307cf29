"""What a sweep's journal says of its trials' curves: pieces, cuts, rungs and copies."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from hposvc.events import Event, Ordered, Reported

Point = tuple[int, float]  # step, loss


@dataclass(frozen=True)
class Origin:
    """Where a trial that copied another one goes on from."""

    donor: "Piece"
    point: Point  # of the donor's curve
    left: Point  # of the trial's own curve, which ends there


@dataclass
class Piece:
    """A stretch of a trial's curve that was trained without a copy."""

    trial: str
    origin: Origin | None = None
    points: list[Point] = field(default_factory=list)
    lives_until: int = 0  # the last step whose weights are somewhere in the end

    @property
    def line(self) -> list[Point]:
        """Its points; after a copy the donor's comes first, on the trial's own clock."""
        if self.origin is None:
            return self.points
        return [(self.origin.left[0], self.origin.point[1]), *self.points]


@dataclass
class Trial:
    """One trial."""

    name: str
    until: int  # where its first order ended
    pieces: list[Piece]
    pauses: list[Point] = field(default_factory=list)  # where it waited, and went on

    @property
    def points(self) -> list[Point]:
        return [point for piece in self.pieces for point in piece.points]

    @property
    def end(self) -> Point:
        return self.points[-1]


@dataclass
class Story:
    """A sweep."""

    last: int  # step at which a trial is over
    trials: dict[str, Trial] = field(default_factory=dict)
    rungs: set[int] = field(default_factory=set)  # at which somebody may be judged, or waits

    @property
    def spent(self) -> int:
        """Steps of all trials."""
        return sum(len(trial.points) for trial in self.trials.values())

    @property
    def best(self) -> Trial:
        """The trial with the lowest last loss."""
        return min(self.trials.values(), key=lambda trial: trial.end[1])

    @property
    def finished(self) -> list[Trial]:
        """The trials that came to the end."""
        return [trial for trial in self.trials.values() if trial.end[0] == self.last]

    @property
    def cut(self) -> list[Trial]:
        """The trials that did not."""
        return [trial for trial in self.trials.values() if trial.end[0] < self.last]

    def lineage(self, trial: Trial) -> Iterator[list[Point]]:
        """The curve of the weights that a trial ended with, from the newest piece back."""
        piece = trial.pieces[-1]
        yield piece.line
        while piece.origin is not None:
            step = piece.origin.point[0]
            piece = piece.origin.donor
            yield [point for point in piece.line if point[0] <= step]


def read(events: Iterable[Event], last: int) -> Story:
    """The story of a simulated sweep whose metric is `loss`."""
    story = Story(last)
    for event in events:
        match event:
            case Ordered():
                _order(story, event)
            case Reported():
                piece = story.trials[event.trial].pieces[-1]
                piece.points.append((event.step, event.metrics["loss"]))
    story.rungs.discard(last)
    for trial in story.finished:
        _mark_alive(trial.pieces[-1], last)
    return story


def _order(story: Story, event: Ordered) -> None:
    order = event.order
    story.rungs |= {order.until, *order.milestones}
    trial = story.trials.get(order.trial)
    if trial is None:
        story.trials[order.trial] = Trial(order.trial, order.until, [Piece(order.trial)])
    elif order.parent is not None and order.start is not None:
        step = order.start.step
        donor = next(
            piece
            for piece in reversed(story.trials[order.parent].pieces)
            if piece.points and piece.points[0][0] <= step
        )
        point = next(point for point in donor.points if point[0] == step)
        trial.pieces.append(Piece(order.trial, Origin(donor, point, trial.end)))
    else:
        trial.pauses.append(trial.end)


def _mark_alive(piece: Piece, step: int) -> None:
    """The piece's weights up to a step are part of what came out."""
    while step > piece.lives_until:
        piece.lives_until = step
        if piece.origin is None:
            return
        piece, step = piece.origin.donor, piece.origin.point[0]


def steps_and_losses(points: Sequence[Point]) -> tuple[list[int], list[float]]:
    """The two axes of a curve."""
    return [step for step, _ in points], [loss for _, loss in points]
