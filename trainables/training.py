"""How a trial trains: the options under `training` in a spec, or `training.NAME` as a parameter."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

Strategy = Literal["single", "ddp"]
Init = Literal["ours", "none"]
Precision = Literal["32-true", "bf16-mixed", "16-mixed", "64-true"]


@dataclass(frozen=True)
class Training:
    """Options of the training runtime; a Task obeys them, a function trainable may read them."""

    strategy: Strategy = "single"
    precision: Precision = "32-true"  # Lightning's names
    accumulate: int = 1  # micro-batches into which a rank splits its share of each batch
    init: Init = "ours"  # who makes the process group; none: a trainable that does it itself
    clip: float | None = None  # largest norm of the whole gradient; None: no clipping
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.strategy not in get_args(Strategy):
            raise ValueError(
                f"strategy is {self.strategy!r}; choose one of {', '.join(get_args(Strategy))}"
            )
        if self.precision not in get_args(Precision):
            raise ValueError(
                f"precision is {self.precision!r}; choose one of {', '.join(get_args(Precision))}"
            )
        if self.init not in get_args(Init):
            raise ValueError(f"init is {self.init!r}; choose one of {', '.join(get_args(Init))}")
        if isinstance(self.accumulate, bool) or not isinstance(self.accumulate, int):
            raise ValueError(f"accumulate is {self.accumulate!r}; give a whole number")
        if self.accumulate < 1:
            raise ValueError(f"accumulate is {self.accumulate}; give 1 or more")
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise ValueError(f"clip is {self.clip}; give a positive norm, or null for none")
