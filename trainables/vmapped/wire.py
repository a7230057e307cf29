"""The messages between a coordinator and a rank that carries out several orders at once."""

from typing import NamedTuple


class OrderAnswer(NamedTuple):
    """To the rank: whether an order goes on, as the answer to a milestone or as an early stop."""

    order: int
    go_on: bool


ALL_ORDERS = 0  # the order that a beat of all orders names: theirs begin at 1
