"""Text to tokens and back: bytes, and pairs of them that were merged because they are frequent.

Sources: Sennrich, Haddow & Birch, Neural Machine Translation of Rare Words with Subword Units
(2016), section 3.2, over the bytes of UTF-8 instead of characters, so that no text is unknown, as
in Radford et al., Language Models are Unsupervised Multitask Learners (2019), section 2.2.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import pairwise

Pair = tuple[int, int]

BYTES = 256
# Runs of letters, digits or signs with a space before them, or of blanks: no merge crosses them.
WORD = re.compile(r" ?[^\W\d_]+| ?\d+| ?(?:[^\w\s]|_)+|\s+(?=\s)|\s+")


@dataclass(frozen=True)
class Tokenizer:
    """Bytes are tokens 0 to 255; merge number n makes token 256 + n of two earlier ones."""

    merges: tuple[Pair, ...] = ()  # none: a token is a byte

    @property
    def vocabulary(self) -> int:
        """The number of different tokens."""
        return BYTES + len(self.merges)

    @cached_property
    def pieces(self) -> list[bytes]:
        """The bytes of each token."""
        found = [bytes([byte]) for byte in range(BYTES)]
        for left, right in self.merges:
            found.append(found[left] + found[right])
        return found

    def encode(self, text: str) -> list[int]:
        """The tokens of a text; `decode` gives it back."""
        if not self.merges:
            return list(text.encode())
        known: dict[str, list[int]] = {}
        tokens: list[int] = []
        for word in WORD.findall(text):
            if word not in known:
                known[word] = self._merged(word)
            tokens += known[word]
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens; bytes that are no character show as a replacement character."""
        return b"".join(self.pieces[token] for token in tokens).decode(errors="replace")

    @cached_property
    def _made(self) -> dict[Pair, int]:
        """Each merged pair's token; lower ones were merged earlier."""
        return {pair: BYTES + number for number, pair in enumerate(self.merges)}

    def _merged(self, word: str) -> list[int]:
        tokens = list(word.encode())
        while len(tokens) > 1:
            first = min(pairwise(tokens), key=lambda pair: self._made.get(pair, self.vocabulary))
            if first not in self._made:
                break
            tokens = _replaced(tokens, first, self._made[first])
        return tokens


def learn(text: str, vocabulary: int) -> Tokenizer:
    """The tokenizer that merges a text's most frequent pairs; fewer where none is left.

    Args:
        vocabulary: tokens, 256 bytes included.

    Raises:
        ValueError: there are more bytes than that.
    """
    if vocabulary < BYTES:
        raise ValueError(f"vocabulary is {vocabulary}; give 256 (bytes alone) or more")
    counts = Counter(WORD.findall(text)) if vocabulary > BYTES else Counter()
    words = [list(word.encode()) for word in counts]
    return Tokenizer(tuple(_merges(words, list(counts.values()), vocabulary - BYTES)))


def _merges(words: list[list[int]], counts: Sequence[int], number: int) -> Iterator[Pair]:
    """The pairs to merge, one after the other; words are changed on the way."""
    weights: Counter[Pair] = Counter()  # of each pair, over all words
    homes: defaultdict[Pair, set[int]] = defaultdict(set)  # words that have or had it
    for at, word in enumerate(words):
        for pair in pairwise(word):
            weights[pair] += counts[at]
            homes[pair].add(at)
    # Of equally frequent pairs the lowest comes first, so that every machine learns the same.
    queue = [(-weight, pair) for pair, weight in weights.items()]
    heapify(queue)
    token, last = BYTES, BYTES + number
    while queue and token < last:
        weight, best = heappop(queue)
        if weight == 0 or -weight != weights[best]:
            continue  # out of date: each change has put in an entry of its own
        yield best
        changed: set[Pair] = set()
        for at in homes.pop(best):
            for pair in pairwise(words[at]):
                weights[pair] -= counts[at]
                changed.add(pair)
            words[at] = _replaced(words[at], best, token)
            for pair in pairwise(words[at]):
                weights[pair] += counts[at]
                homes[pair].add(at)
                changed.add(pair)
        for pair in changed:
            heappush(queue, (-weights[pair], pair))
        token += 1


def _replaced(tokens: Sequence[int], pair: Pair, token: int) -> list[int]:
    """The tokens with each occurrence of a pair, from the left, as one token."""
    found: list[int] = []
    at = 0
    while at < len(tokens):
        if at + 1 < len(tokens) and (tokens[at], tokens[at + 1]) == pair:
            found.append(token)
            at += 2
        else:
            found.append(tokens[at])
            at += 1
    return found
