"""A tokenizer by byte-pair encoding: tokens are bytes, and merged pairs of frequent tokens.

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
# Runs of letters, digits or signs with a space before them, or of blanks: merges stay inside a run.
WORD = re.compile(r" ?[^\W\d_]+| ?\d+| ?(?:[^\w\s]|_)+|\s+(?=\s)|\s+")


@dataclass(frozen=True)
class Tokenizer:
    """A tokenizer: tokens 0 to 255 are bytes; merge n joins two earlier tokens to token 256 + n."""

    merges: tuple[Pair, ...] = ()  # empty: tokens are bytes

    @property
    def vocabulary(self) -> int:
        """The number of different tokens."""
        return BYTES + len(self.merges)

    @cached_property
    def pieces(self) -> list[bytes]:
        """The bytes of each token."""
        pieces = [bytes([byte]) for byte in range(BYTES)]
        for left, right in self.merges:
            pieces.append(pieces[left] + pieces[right])
        return pieces

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text; `decode` inverts it."""
        if not self.merges:
            return list(text.encode())
        cache_: dict[str, list[int]] = {}
        tokens: list[int] = []
        for word in WORD.findall(text):
            if word not in cache_:
                cache_[word] = self._encode_word(word)
            tokens += cache_[word]
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, with a replacement character for bytes of no character."""
        return b"".join(self.pieces[token] for token in tokens).decode(errors="replace")

    @cached_property
    def _token_of_pair(self) -> dict[Pair, int]:
        """The token of each merged pair; lower tokens were merged earlier."""
        return {pair: BYTES + number for number, pair in enumerate(self.merges)}

    def _encode_word(self, word: str) -> list[int]:
        tokens = list(word.encode())
        while len(tokens) > 1:
            earliest = min(
                pairwise(tokens), key=lambda pair: self._token_of_pair.get(pair, self.vocabulary)
            )
            if earliest not in self._token_of_pair:
                break
            tokens = _replace_pair(tokens, earliest, self._token_of_pair[earliest])
        return tokens


def learn(text: str, vocabulary: int) -> Tokenizer:
    """Learn a tokenizer that merges a text's most frequent pairs.

    Args:
        vocabulary: number of tokens, 256 bytes included; fewer if no pair is left to merge.

    Raises:
        ValueError: the vocabulary is smaller than 256.
    """
    if vocabulary < BYTES:
        raise ValueError(f"vocabulary is {vocabulary}; give 256 (bytes alone) or more")
    counts = Counter(WORD.findall(text)) if vocabulary > BYTES else Counter()
    words = [list(word.encode()) for word in counts]
    return Tokenizer(tuple(_merges(words, list(counts.values()), vocabulary - BYTES)))


def _merges(words: list[list[int]], counts: Sequence[int], number: int) -> Iterator[Pair]:
    """Yield the pairs to merge, one after the other, while merging them in `words`."""
    weights: Counter[Pair] = Counter()  # frequency of each pair in all words
    words_of_pair: defaultdict[Pair, set[int]] = defaultdict(set)  # words that have or had the pair
    for index, word in enumerate(words):
        for pair in pairwise(word):
            weights[pair] += counts[index]
            words_of_pair[pair].add(index)
    # The lowest of equally frequent pairs comes first, so that every machine learns the same.
    queue = [(-weight, pair) for pair, weight in weights.items()]
    heapify(queue)
    token, last = BYTES, BYTES + number
    while queue and token < last:
        weight, best = heappop(queue)
        if weight == 0 or -weight != weights[best]:
            continue  # outdated: each change of a weight has pushed a new entry
        yield best
        changed: set[Pair] = set()
        for index in words_of_pair.pop(best):
            for pair in pairwise(words[index]):
                weights[pair] -= counts[index]
                changed.add(pair)
            words[index] = _replace_pair(words[index], best, token)
            for pair in pairwise(words[index]):
                weights[pair] += counts[index]
                words_of_pair[pair].add(index)
                changed.add(pair)
        for pair in changed:
            heappush(queue, (-weights[pair], pair))
        token += 1


def _replace_pair(tokens: Sequence[int], pair: Pair, token: int) -> list[int]:
    """Replace each occurrence of a pair, from the left, by a token."""
    replaced: list[int] = []
    index = 0
    while index < len(tokens):
        if index + 1 < len(tokens) and (tokens[index], tokens[index + 1]) == pair:
            replaced.append(token)
            index += 2
        else:
            replaced.append(tokens[index])
            index += 1
    return replaced
