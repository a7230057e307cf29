"""What leader and rank say to each other where the rank carries out several orders at once."""

from typing import NamedTuple

from trainables.slots.wire import Beat, Done, Keep, Report, Uses, Warned


class Told(NamedTuple):
    """A report, and whose it is."""

    order: int
    report: Report


class Answer(NamedTuple):
    """To the rank: whether an order goes on after its milestone; or that it is to stop."""

    order: int
    go_on: bool


Said = Told | Keep | Uses | Beat | Warned | Done  # by the rank
EVERY = 0  # the order that a beat of all orders names: theirs begin at 1
