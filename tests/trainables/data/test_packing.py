"""If these fail, packed documents leak into each other, or padding counts as text."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from trainables.data import IGNORED, pack

DOCUMENTS = some.lists(some.lists(some.integers(0, 99), max_size=9), min_size=1, max_size=9).filter(
    lambda documents: max(map(len, documents)) > 1
)


@settings(deadline=None)
@given(documents=DOCUMENTS, length=some.integers(1, 12))
def test_each_token_is_predicted_once_from_the_one_before_it_in_its_document(documents, length):
    tokens, targets, numbers = pack(documents, length).columns
    counted = targets != IGNORED
    rows = zip(
        numbers[counted].tolist(), tokens[counted].tolist(), targets[counted].tolist(), strict=True
    )
    expected = [
        (number, *pair) for number, document in enumerate(documents) for pair in pairwise(document)
    ]
    assert list(rows) == expected


@settings(deadline=None)
@given(documents=DOCUMENTS, length=some.integers(1, 12))
def test_nothing_is_wasted_but_the_end_of_the_last_window(documents, length):
    tokens, targets, numbers = (column.flatten() for column in pack(documents, length).columns)
    filling = numbers == -1
    assert filling.sum() < length
    assert not filling[: len(filling) - int(filling.sum())].any()
    assert tokens[~filling].tolist() == [token for document in documents for token in document][:-1]
    assert (targets[filling] == IGNORED).all()


def test_what_cannot_be_packed_is_refused():
    with pytest.raises(ValueError, match="length is 0; give 1 token or more"):
        pack([[1, 2]], 0)
    with pytest.raises(ValueError, match="no document has two tokens"):
        pack([[1], []], 3)
