"""The section `price` of a spec: what an hour of the machines costs."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from hposvc.spec.types import CLOSED

Amount = Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class Price:
    """Price of an hour, in a currency of the user's own."""

    gpu_hour: Amount | None = None  # None: unknown
    worker_hour: Amount | None = None  # of a worker without GPUs; None: unknown
    currency: Annotated[str, Field(max_length=20)] = ""  # as shown behind amounts
    __pydantic_config__ = CLOSED

    def of_rank_hour(self, gpus: float) -> float | None:
        """Return the price of an hour of a worker with so many GPUs; None: unknown."""
        if not gpus:
            return self.worker_hour
        return None if self.gpu_hour is None else self.gpu_hour * gpus

    def text(self, amount: float) -> str:
        """Return an amount for people, with its currency: `12.30 EUR`."""
        return f"{amount_text(amount)} {self.currency}".rstrip()


def amount_text(amount: float) -> str:
    """Return an amount without its currency."""
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.2f}"
