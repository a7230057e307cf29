"""What a trial says once of its samples, so that people can tell later which they were."""

import operator
from dataclasses import dataclass
from typing import Literal

LONGEST = 60_000  # characters of a source: what MLflow takes


@dataclass(frozen=True)
class DataSet:
    """Samples that a trial trains with, or is judged by; a trial may have several of either."""

    name: str
    context: Literal["training", "validation"]
    samples: int
    digest: str = ""  # of their contents, 36 characters at most; empty: nobody looked into them
    source: str = ""  # a path or a URL; empty: the trainable's code alone knows

    def __post_init__(self) -> None:
        # What people have at hand: a Path, a number of numpy's.
        object.__setattr__(self, "source", str(self.source))
        object.__setattr__(self, "samples", operator.index(self.samples))
        texts = isinstance(self.name, str) and isinstance(self.digest, str)
        if not texts or not 0 < len(self.name) <= 500 or len(self.digest) > 36:
            raise ValueError(
                f"data set {self.name!r}, digest {self.digest!r}; give a name of 500 and a digest "
                "of 36 characters at most"
            )
        if len(self.source) > LONGEST:
            raise ValueError(f"data set {self.name!r}: its source is longer than {LONGEST}")
