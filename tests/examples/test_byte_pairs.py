"""If this fails, a language model reads another text than its user's, or learns other tokens."""

from collections import Counter
from itertools import pairwise

from byte_pairs import WORD, Tokenizer, learn
from hypothesis import given
from hypothesis import strategies as st

TEXT = "the cat sat on the mat; the rat, that sat on the cat, spat.\n\n  naïve 1234_5 猫\t" * 9
BYTES, PAIRS = Tokenizer(), learn(TEXT, 300)


@given(st.text())
def test_any_text_comes_back_as_it_was(text):
    for tokenizer in (BYTES, PAIRS):
        tokens = tokenizer.encode(text)
        assert tokenizer.decode(tokens) == text
        assert all(0 <= token < tokenizer.vocabulary for token in tokens)


def test_the_most_frequent_pairs_are_merged_one_after_the_other():
    """The example of the paper's figure 1, without its marker for the end of a word."""
    text = "low " * 5 + "lower " * 2 + "newest " * 6 + "widest " * 3
    assert learn(text, 260).pieces[256:] == [b"es", b"est", b"lo", b"low"]


def test_counts_that_are_kept_up_to_date_choose_what_counting_anew_chooses():
    words, expected = [list(word.encode()) for word in WORD.findall(TEXT)], []
    for token in range(256, PAIRS.vocabulary):
        counts = Counter(pair for word in words for pair in pairwise(word))
        expected.append(min(counts, key=lambda pair: (-counts[pair], pair)))
        left, right = expected[-1]
        for word in words:
            for at in range(len(word)):
                if word[at : at + 2] == [left, right]:
                    word[at : at + 2] = [token]
    assert list(PAIRS.merges) == expected
    assert PAIRS.encode(TEXT) == [token for word in words for token in word]
