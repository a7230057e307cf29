"""The description of a trial's samples, recorded so that people can identify them later."""

import operator
from dataclasses import dataclass
from typing import ClassVar, Literal

from trainables.limits import Count, LongText, Text

LONGEST_SOURCE = 60_000  # characters of a source: MLflow's limit


@dataclass(frozen=True)
class DataSet:
    """Samples for training or validating a trial; a trial may have several of either kind."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    name: Text
    context: Literal["training", "validation"]
    samples: Count | None  # None: nobody knows, as of a stream
    digest: Text = ""  # of their contents, 36 characters at most; empty: not computed
    source: LongText = ""  # a path or a URL; empty: known to the trainable's code only

    def __post_init__(self) -> None:
        # Callers often have a Path, or a numpy integer.
        object.__setattr__(self, "source", str(self.source))
        if self.samples is not None:
            object.__setattr__(self, "samples", operator.index(self.samples))
        texts = isinstance(self.name, str) and isinstance(self.digest, str)
        if not texts or not 0 < len(self.name) <= 500 or len(self.digest) > 36:
            raise ValueError(
                f"data set {self.name!r}, digest {self.digest!r}; give a name of 500 and a digest "
                "of 36 characters at most"
            )
        if len(self.source) > LONGEST_SOURCE:
            raise ValueError(f"data set {self.name!r}: its source is longer than {LONGEST_SOURCE}")
