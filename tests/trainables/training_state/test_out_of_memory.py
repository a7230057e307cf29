import pytest

from trainables.training_state.out_of_memory import MicroBatching
from trainables.worker import TooLarge

FULL = RuntimeError("out of memory")


def test_micro_batches_are_halved_until_they_have_one_sample():
    batching = MicroBatching(1)
    for count in (2, 4, 8):
        batching.halve(5, FULL)
        assert batching.count == count
    with pytest.raises(RuntimeError) as raised:
        batching.halve(5, FULL)
    assert raised.value is FULL


@pytest.mark.parametrize(("count", "size"), [(1, 5), (2, 3), (4, 2)])
def test_the_size_that_did_not_fit_is_named_where_the_other_ranks_cannot_be_told(count, size):
    refusal = MicroBatching(count).refusal(5, FULL)
    assert isinstance(refusal, TooLarge)
    assert f"a micro-batch of {size} samples did not fit" in str(refusal)


def test_one_sample_that_does_not_fit_is_out_of_memory_for_good():
    assert MicroBatching(5).refusal(5, FULL) is FULL
