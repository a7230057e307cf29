"""Ranks compare what they use of the model: all that differs, and little of what does not."""

from collections.abc import Sequence

import pytest
import torch

from trainables.parallel.agreement import END, Agreement, UnequalUse

USUAL, OTHER = ("called a", "called b"), ("called a", "called c")


def on_gpus() -> Agreement:
    return Agreement.of("fsdp", torch.device("cuda"))


def messages(rank: int, passes: Sequence[Sequence[str]]) -> list[int]:
    """Return how many messages the agreement on each pass takes."""
    agreement, sent = on_gpus(), []
    compare = agreement._compare
    agreement._compare = lambda: (sent.append(1), compare())
    counts = []
    for uses in passes:
        begun = len(sent)
        follow(agreement, uses)
        counts.append(len(sent) - begun)
    agreement.close()
    return counts


def follow(agreement: Agreement, uses: Sequence[str]) -> None:
    for use in (*uses, END):
        agreement.check(use)


def refused(rank: int, passes: Sequence[Sequence[Sequence[str]]]) -> str:
    """Return why the last pass is refused; each rank has passes of its own."""
    agreement = on_gpus()
    *agreed, last = passes[rank]
    for uses in agreed:
        follow(agreement, uses)
    with pytest.raises(UnequalUse) as caught:
        follow(agreement, last)
    agreement.close()
    return str(caught.value)


def evaluated(rank: int) -> list[int]:
    """Return the messages of passes with and without gradients in turn."""
    agreement, sent = on_gpus(), []
    compare = agreement._compare
    agreement._compare = lambda: (sent.append(1), compare())
    counts = []
    for number in range(6):
        begun = len(sent)
        with torch.set_grad_enabled(number % 2 == 0):
            follow(agreement, OTHER if number % 2 else USUAL)
        counts.append(len(sent) - begun)
    agreement.close()
    return counts


def test_a_pass_like_the_last_one_takes_one_message(on_two_ranks):
    passes = [USUAL, USUAL, OTHER, OTHER, (), USUAL, (*USUAL, *USUAL), USUAL]
    expected = [3, 1, 2, 1, 1, 3, 3, 1]
    for counts in on_two_ranks(messages, passes):
        assert counts == expected


def compared(rank: int) -> int:
    """Return the messages of a pass like the last one on CPUs, where a rank could wait for ever."""
    agreement, sent = Agreement.of("fsdp", torch.device("cpu")), []
    follow(agreement, USUAL)
    compare = agreement._compare
    agreement._compare = lambda: (sent.append(1), compare())
    follow(agreement, USUAL)
    agreement.close()
    return len(sent)


def test_on_cpus_each_use_is_compared(on_two_ranks):
    assert on_two_ranks(compared) == [3, 3]


def test_passes_with_gradients_have_a_path_of_their_own(on_two_ranks):
    for counts in on_two_ranks(evaluated):
        assert counts == [3, 3, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([OTHER], [USUAL], "rank 0 called c, where rank 1 called b"),
        ([USUAL, OTHER], [USUAL, USUAL], "rank 0 called c, where rank 1 called b"),
        ([USUAL, USUAL], [USUAL, USUAL[:1]], "rank 0 called b, where rank 1 ended its pass"),
        ([USUAL, (*USUAL, "called c")], [USUAL, USUAL], "rank 0 called c, where rank 1 ended"),
    ],
)
def test_a_rank_that_leaves_the_path_alone_is_named(on_two_ranks, first, second, expected):
    for message in on_two_ranks(refused, [first, second]):
        assert expected in message
