"""If these fail, training sees other samples than those at the drawn positions."""

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from trainables.data import Data, Tensors, TokenFile, Tokens
from trainables.dataset import DataSet


@pytest.mark.parametrize(
    "other",
    [
        *(torch.arange(1, 7), torch.arange(6.0), torch.arange(6).reshape(3, 2)),
        torch.tensor([0, 1, 2, 3, 5, 4]),
    ],
)
def test_a_digest_tells_samples_from_others_and_never_changes(other):
    column = torch.arange(6)
    assert Tensors(column).digest == Tensors(column.clone()).digest
    assert Tensors(column).digest != Tensors(other).digest
    assert Tensors(column, column).digest != Tensors(column).digest


def test_a_digest_of_tokens_is_of_their_share_and_windows(tmp_path):
    file = TokenFile.build(tmp_path / "a.tokens", [[*range(9)] * 9], list, 9)
    other = TokenFile.build(tmp_path / "b.tokens", [[*range(9)] * 8 + [0] * 9], list, 9)
    digests = [Tokens(file, 4), Tokens(file, 5), Tokens(file, 4, (0.0, 0.5)), Tokens(other, 4)]
    assert len({tokens.digest for tokens in digests}) == 4
    assert Tokens(file, 4).digest == digests[0].digest
    assert Tokens(file, 4).uri == f"{tmp_path / 'a.tokens'}"


def test_a_last_batch_that_is_not_full_can_be_left_out():
    samples = Tensors(torch.zeros(33))
    data = Data(samples, samples, drop_last=True)
    assert list(map(len, data.batches(torch.arange(33), 8))) == [8, 8, 8, 8]
    assert list(map(len, data.batches(torch.arange(33), 34))) == [33]


def test_data_say_which_they_are_and_where_they_come_from():
    train, judged = Tensors(torch.zeros(5)), Tensors(torch.zeros(2))
    described = Data(train, judged, source="s3://bucket/x").describe("Net")
    assert described == (
        DataSet("Net", "training", 5, train.digest, "s3://bucket/x"),
        DataSet("Net", "validation", 2, judged.digest, "s3://bucket/x"),
    )
    assert Data(train, judged, name="zeros").describe("Net")[0].name == "zeros"


class Stream(IterableDataset):
    """Samples that come one after the other."""

    def __iter__(self):
        yield from torch.zeros(3)


ROWS = TensorDataset(torch.zeros(3))


@pytest.mark.parametrize(
    ("value", "way_out"),
    [
        (ROWS, r"TensorDataset, .* give MapDataset\(\.\.\.\) of it"),
        (DataLoader(ROWS), r"DataLoader, .* MapDataset\(\.\.\.\) of the loader's dataset"),
        (Stream(), r"Stream, .* give Stream\(\.\.\.\) of it to train on"),
        (torch.zeros(3), r"Tensor, .* give Tensors\(\.\.\.\)"),
        ((torch.zeros(3), torch.zeros(3)), r"tuple, .* give Tensors\(\.\.\.\)"),
    ],
)
def test_samples_that_are_no_source_are_refused_with_the_way_out(value, way_out):
    source = Tensors(torch.zeros(3))
    with pytest.raises(TypeError, match=f"Data: train is {way_out}"):
        Data(value, source)
    with pytest.raises(TypeError, match=f"Data: validation is {way_out}"):
        Data(source, value)
