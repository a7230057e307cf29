"""What a trial says once of its samples, so that people can tell later which they were."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class DataSet:
    """Samples that a trial trains with, or is judged by; a trial may have several of either."""

    name: str
    context: Literal["training", "validation"]
    samples: int
    digest: str = ""  # of their contents, 36 characters at most; empty: nobody looked into them
    source: str = ""  # a path or a URL; empty: the trainable's code alone knows

    def __post_init__(self) -> None:
        if not self.name or len(self.digest) > 36:
            raise ValueError(
                f"data set {self.name!r}, digest {self.digest!r}; give a name, and a digest of 36 "
                "characters at most"
            )
