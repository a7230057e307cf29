"""If these fail, a language model learns from tokens that were never written, or misses some.

Axes: B windows of a batch, T tokens of a window.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from trainables.data import IGNORED, TokenFile, Tokens


def written(folder: Path, documents: list[list[int]], vocabulary: int = 256) -> TokenFile:
    return TokenFile.build(folder / "tokens", documents, list, vocabulary)


@settings(deadline=None, max_examples=60)
@given(number=some.integers(3, 60), length=some.integers(1, 12), batch=some.integers(1, 9))
def test_each_token_but_the_first_is_a_target_once(tmp_path_factory, number, length, batch):
    if length >= number:
        length = number - 1
    source = Tokens(written(tmp_path_factory.mktemp("t"), [list(range(number))]), length)
    targets = []
    for at_B in torch.arange(len(source)).split(batch):
        x_BT, y_BT = source.batch(at_B)
        assert x_BT.shape == y_BT.shape == (len(at_B), length)
        counted = y_BT != IGNORED
        assert (y_BT[counted] == x_BT[counted] + 1).all()
        targets += y_BT[counted].tolist()
    assert sorted(targets) == list(range(1, number))


@pytest.mark.parametrize(("vocabulary", "size"), [(2, 2), (2**16, 2), (2**16 + 1, 4), (2**32, 4)])
def test_a_token_takes_as_few_bytes_as_the_vocabulary_allows(tmp_path, vocabulary, size):
    last = vocabulary - 1
    file = written(tmp_path, [[0, last], [], [last]], vocabulary)
    assert file.read().dtype.itemsize == size
    assert file.read().tolist() == [0, last, last]
    assert file.path.stat().st_size == 24 + 3 * size
    assert TokenFile.open(file.path) == file


def test_shares_of_a_file_have_no_token_in_common(tmp_path):
    file = written(tmp_path, [list(range(100))])
    train, validation = Tokens(file, 9, (0.0, 0.9)), Tokens(file, 3, (0.9, 1.0))
    assert [len(train), len(validation)] == [10, 3]
    assert torch.cat(train.batch(torch.arange(10))).max() == 89
    assert validation.batch(torch.tensor([0]))[0].tolist() == [[90, 91, 92]]


def test_documents_are_encoded_once(tmp_path):
    def encode(text: str) -> bytes:
        calls.append(text)
        return text.encode() + b"\0"

    calls: list[str] = []
    for _ in range(2):
        file = TokenFile.build(tmp_path / "deep" / "text", iter(["ab", "c"]), encode, 256)
    assert calls == ["ab", "c"]
    assert bytes(file.read().astype(np.uint8)) == b"ab\0c\0"


def test_a_file_of_something_else_is_refused(tmp_path):
    file = written(tmp_path, [[1, 2, 3]])
    with pytest.raises(ValueError, match="has a vocabulary of 256, not 300"):
        written(tmp_path, [[1, 2, 3]], 300)
    (tmp_path / "text").write_text("not tokens")
    with pytest.raises(ValueError, match="is none; build one with"):
        TokenFile.open(tmp_path / "text")
    content = file.path.read_bytes()
    file.path.write_bytes(content[:-1])
    with pytest.raises(ValueError, match="has 29 bytes, not 30: a part is missing"):
        TokenFile.open(file.path)


def test_windows_that_no_file_holds_are_refused(tmp_path):
    file = written(tmp_path, [[1, 2, 3, 4]])
    with pytest.raises(ValueError, match="length is 4; tokens has 4 tokens in this share, so give"):
        Tokens(file, 4)
    with pytest.raises(ValueError, match=r"share is \(0.5, 0.1\); give two numbers from 0 to 1"):
        Tokens(file, 1, (0.5, 0.1))
