"""If these fail, a stream trains samples twice or never, or a resumed trial sees other ones."""

import os
import pickle
import random
import signal
from dataclasses import dataclass
from itertools import islice

import datasets
import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.utils.data import IterableDataset

from trainables.data import Data, Stream, StreamShard, Tensors
from trainables.runtime import process_state

CPU = torch.device("cpu")


@dataclass
class Shuffled(IterableDataset):
    """Numbers in another order in each pass, each with random numbers."""

    length: int

    def __iter__(self):
        order = list(range(self.length))
        random.shuffle(order)
        for number in order:
            yield number, torch.rand(()).item(), float(np.random.rand())


class Remembering:
    """Numbers that can be moved, and change the state that they returned."""

    def __init__(self, length):
        self.length, self.to, self.moved = length, 0, {"to": 0}

    def __iter__(self):
        for number in range(self.to, self.length):
            self.moved["to"] = number + 1
            yield number, torch.rand(()).item()
        self.to = 0

    def state_dict(self):
        return self.moved

    def load_state_dict(self, state):
        self.to = state["to"]


def files(part, parts):
    """Read files in random order, each by one part."""
    names = list(range(7))
    random.shuffle(names)
    order = random.random()  # equal in all parts of a pass
    for name in names[part::parts]:
        for line in range(name + 3):
            yield 100 * name + line, torch.rand(()).item(), order


FILES = {100 * name + line for name in range(7) for line in range(name + 3)}


def rows(shards):
    for shard in shards:
        for row in range(7):
            yield {"number": 100 * shard + row, "pair": [row, row + 1]}


ROWS = {100 * shard + row for shard in range(12) for row in range(7)}


def hugging_face() -> datasets.IterableDataset:
    return datasets.IterableDataset.from_generator(rows, gen_kwargs={"shards": list(range(12))})


def noisy(example):
    return {**example, "noise": random.random()}


def noisy_batch(examples):
    return {**examples, "noise": [random.random() for _ in examples["number"]]}


SOURCES = {
    "iterable": lambda: Shuffled(23),
    "iterable with a state": lambda: Remembering(23),
    "files": lambda: files,
    "datasets": hugging_face,
    "datasets shuffled and mapped": lambda: (
        hugging_face().shuffle(seed=1, buffer_size=10).map(noisy)
    ),
    "datasets mapped in batches": lambda: hugging_face().map(
        noisy_batch, batched=True, batch_size=5
    ),
}


def opened(source, workers=0, rank=0, size=1, batch=6, seed=3) -> StreamShard:
    stream = Stream(SOURCES[source](), workers=workers)
    return stream.to(CPU, torch.float64).shard(rank, size, batch=batch, seed=seed)


def positions(update, shard):
    layout = shard._layout
    first = update * layout.batch
    return torch.arange(first, first + layout.batch)[layout.rank :: layout.size]


def updates(shard, begin, end):
    """Return the samples of a rank in some updates, as rows of numbers."""
    batches = [shard.batch(positions(update, shard)) for update in range(begin, end)]
    return [list(zip(*(column.tolist() for column in batch), strict=True)) for batch in batches]


def read(shard, end):
    try:
        return updates(shard, 0, end)
    finally:
        shard.close()


def numbers(read):
    return [row[0] for batch in read for row in batch]


@pytest.mark.parametrize("source", SOURCES)
@settings(max_examples=5, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    size=st.integers(1, 3),
    workers=st.sampled_from([0, 1, 3]),
    batch=st.integers(3, 9),
    stop=st.integers(0, 8),
    data=st.data(),
)
def test_a_resumed_stream_goes_on_exactly(source, size, workers, batch, stop, data):
    rank = data.draw(st.integers(0, size - 1))
    layout = {"workers": workers, "rank": rank, "size": size, "batch": batch}
    shard = opened(source, **layout)
    try:
        before = updates(shard, 0, stop)
        state = pickle.dumps(shard.state())
        expected = updates(shard, stop, 9)
    finally:
        shard.close()
    assert before + expected == read(opened(source, **layout), 9)
    for _ in range(2):  # once more from what was saved before the first update
        resumed = opened(source, **layout)
        try:
            resumed.restore(pickle.loads(state))
            state = pickle.dumps(resumed.state())
            assert updates(resumed, stop, 9) == expected
        finally:
            resumed.close()


@pytest.mark.parametrize(("source", "all_numbers"), [("files", FILES), ("datasets", ROWS)])
@pytest.mark.parametrize(("size", "workers"), [(1, 3), (2, 0), (2, 2), (3, 0)])
def test_parts_of_a_data_set_are_disjoint_and_complete(source, all_numbers, size, workers):
    parts = []
    for rank in range(size):
        end = 99 if source == "files" else len(ROWS) // size
        samples = [row for [row] in read(opened(source, workers, rank, size, batch=size), end)]
        parts += [row[0] for row in samples if row[2:] == samples[0][2:]]  # of the first pass
    assert sorted(parts) == sorted(all_numbers)


@pytest.mark.parametrize("source", ["iterable", "iterable with a state"])
def test_an_iterable_gives_the_same_updates_on_any_number_of_ranks_and_workers(source):
    alone = read(opened(source, batch=7), 9)
    for size, workers in ((1, 2), (2, 0), (3, 1)):
        ranks = [read(opened(source, workers, rank, size, 7), 9) for rank in range(size)]
        for update, batch in enumerate(alone):
            assert [batch[rank::size] for rank in range(size)] == [own[update] for own in ranks]
    assert sorted(numbers(alone)[:23]) == sorted(numbers(alone)[23:46]) == list(range(23))
    assert numbers(alone)[:23] != numbers(alone)[23:46] or source != "iterable"
    assert len({row[1] for batch in alone for row in batch}) == 63


@given(size=st.integers(1, 3), batch=st.integers(3, 9), stop=st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_other_ranks_and_batches_go_on_with_the_samples_not_yet_trained(size, batch, stop):
    stream = numbers(read(opened("iterable", batch=1), 99 + 9))
    shards = [opened("iterable", 0, rank, size, batch) for rank in range(size)]
    state = opened("iterable", batch=1)
    updates(state, 0, stop)
    for shard, moved in zip(shards, ("skip", "restore", "skip"), strict=False):
        if moved == "skip":
            shard.skip(stop)
        else:
            shard.restore(state.state())
    ranks = [shard.batch(stop + positions(0, shard))[0].tolist() for shard in shards]
    after = stream[stop : stop + batch]
    assert ranks == [after[rank::size] for rank in range(size)]


def test_what_divides_itself_skips_as_many_of_its_part_as_were_trained():
    shards = [opened("datasets", 0, rank, 2) for rank in (0, 1)]
    expected = [updates(shard, 0, 5)[3:] for shard in shards]
    for rank, shard in enumerate(shards):
        shard.skip(18)
        assert updates(shard, 3, 5) == expected[rank]


def test_samples_of_an_update_can_be_asked_for_again_in_other_pieces():
    shard, other = opened("iterable", 2, 1, 2, 7), opened("iterable", 0, 1, 2, 7)
    expected = [row for batch in read(other, 3) for row in batch]
    first, second, third = (positions(update, shard) for update in range(3))
    asked = [first[:2], *first.split(1), first, second, second[1:3], third[:1], third[1:]]
    ordered = torch.cat([first, second, third]).tolist()
    for at_B in asked:
        columns = shard.batch(at_B)
        got = list(zip(*(column.tolist() for column in columns), strict=True))
        assert got == [expected[ordered.index(at)] for at in at_B.tolist()]
    # A rank without a sample in a micro-batch passes any, which does not count.
    state = shard.state()
    assert len(shard.batch(torch.zeros(1, dtype=torch.int64))[0]) == 1
    assert shard.state() == state
    with pytest.raises(ValueError, match="position 8 is not of the update that has 15"):
        shard.batch(second)
    shard.close()


class Bad(IterableDataset):
    def __iter__(self):
        yield from ((number, 0.0) for number in range(5))
        raise OSError("the line is dead")


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_the_data_set_says_where_it_was_raised(workers):
    before, handler = process_state.baseline(), signal.getsignal(signal.SIGCHLD)
    shard = Stream(Bad(), workers).shard(0, 1, batch=2)
    with pytest.raises(OSError, match="the line is dead") as raised:
        read(shard, 4)
    text = f"{raised.value}" + "".join(getattr(raised.value, "__notes__", ()))
    assert "Stream: it was sample 5 of pass 0, read by process" in text
    assert "of rank 0 of 1" in text
    assert workers == 0 or "in __iter__" in text
    assert process_state.difference(before, process_state.baseline()) == []
    assert signal.getsignal(signal.SIGCHLD) == handler


def test_a_worker_that_is_killed_is_an_error_and_no_hang():
    def fatal(part, parts):
        yield 1.0
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(RuntimeError, match="Stream: a process that loads samples was killed"):
        read(Stream(fatal, workers=1, prefetch=1).shard(0, 1, batch=1), 3)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("empty", [[], lambda part, parts: []])
def test_a_stream_without_samples_is_an_error(empty, workers):
    with pytest.raises(ValueError, match="a pass of the data set has no samples for rank 0"):
        read(Stream(empty, workers).shard(0, 1, batch=2), 1)


def test_streams_leave_the_generators_of_training_alone():
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    for workers in (0, 1):
        begun, resumed = opened("iterable", workers), opened("iterable", workers)
        updates(begun, 0, 3)
        resumed.restore(begun.state())
        updates(resumed, 3, 4)
        begun.close()
        resumed.close()
    Stream(Shuffled(5)).first(3)
    assert torch.equal(torch.rand(1), expected)


def test_the_first_samples_are_a_source_to_validate_on():
    stream = Stream(hugging_face()).to(CPU, torch.float64)
    number_B, pair_B2 = stream.first(9).columns
    assert number_B.tolist() == [row["number"] for row in islice(hugging_face(), 9)]
    assert pair_B2.shape == (9, 2)
    assert len(stream.first(1000)) == len(ROWS)
    assert stream.batch(torch.tensor([8, 0]))[0].tolist() == [101, 0]
    train, validation = Data(stream, stream.first(9), name="rows").describe("")
    assert (train.samples, validation.samples) == (None, 9)
    assert Stream(hugging_face(), length=42).samples == len(Stream([1], length=42)) == 42
    with pytest.raises(TypeError, match=r"validation is a stream.*first\(N\)"):
        Data(Tensors(torch.zeros(3)), stream)
    with pytest.raises(TypeError, match=r"updates, samples or tokens"):
        len(stream)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dataset": iter([1.0])}, r"list_iterator can't be read pass after.*open\(part, parts\)"),
        ({"dataset": 5}, "a int can't be read"),
        ({"dataset": [1], "workers": -1}, "workers is -1; give 0 or more"),
        ({"dataset": [1], "prefetch": 0}, "prefetch is 0; give 1 or more"),
        ({"dataset": [1], "length": 0}, "length is 0; give 1 or more"),
    ],
)
def test_what_can_not_be_streamed_is_refused(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Stream(**arguments)


def test_a_batch_smaller_than_the_ranks_is_refused():
    with pytest.raises(ValueError, match="2 samples for 3 ranks"):
        Stream([1.0]).shard(0, 3, batch=2)


def test_a_collate_fn_makes_batches_of_samples_of_any_kind():
    def padded(texts):
        return (torch.tensor([len(text) for text in texts]),)

    stream = Stream(["a", "bb", "ccc"], workers=1, collate_fn=padded)
    assert numbers(read(stream.shard(0, 1, batch=2), 2)) == [1, 2, 3, 1]
    with pytest.raises(TypeError, match="Stream: default_collate returned str for 1 samples, at 0"):
        Stream(["a"]).first(1)


def test_a_missing_torchdata_is_an_error_with_the_extra_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torchdata.stateful_dataloader", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'hposvc\[streaming\]'"):
        Stream([1.0]).shard(0, 1, batch=1)
