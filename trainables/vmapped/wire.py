"""The messages between a coordinator and a rank that carries out several orders at once."""

from typing import NamedTuple

from trainables.runtime.wire import (
    Beat,
    CheckpointNotice,
    DataNotice,
    Done,
    PreemptionNotice,
    Report,
)


class OrderReport(NamedTuple):
    """A report, with the order that it belongs to."""

    order: int
    report: Report


class Answer(NamedTuple):
    """To the rank: whether an order goes on, as the answer to a milestone or as an early stop."""

    order: int
    go_on: bool


OrderMessage = (
    OrderReport | CheckpointNotice | DataNotice | Beat | PreemptionNotice | Done
)  # by the rank
ALL_ORDERS = 0  # the order that a beat of all orders names: theirs begin at 1
