"""Ranks compare what they use of the model: all that differs, and little of what does not."""

from collections.abc import Sequence

import pytest
import torch

from trainables.parallel.agreement import END, Agreement, UnequalUse

USUAL, OTHER = ("called a", "called b"), ("called a", "called c")


def follow(agreement: Agreement, uses: Sequence[str]) -> None:
    for use in (*uses, END):
        agreement.check(use)


def messages(
    rank: int, passes: Sequence[Sequence[str]], device: str = "cuda", evaluates: bool = False
) -> list[int]:
    """Return how many messages the agreement on each pass takes.

    Args:
        evaluates: every other pass is without gradients.
    """
    agreement, sent = Agreement.of("fsdp", torch.device(device)), []
    compare = agreement._compare
    agreement._compare = lambda: (sent.append(1), compare())
    counts = []
    for number, uses in enumerate(passes):
        begun = len(sent)
        with torch.set_grad_enabled(not (evaluates and number % 2)):
            follow(agreement, uses)
        counts.append(len(sent) - begun)
    agreement.close()
    return counts


def refused(rank: int, passes: Sequence[Sequence[Sequence[str]]]) -> str:
    """Return why the last pass is refused; each rank has passes of its own."""
    agreement = Agreement.of("fsdp", torch.device("cuda"))
    *agreed, last = passes[rank]
    for uses in agreed:
        follow(agreement, uses)
    with pytest.raises(UnequalUse) as caught:
        follow(agreement, last)
    agreement.close()
    return str(caught.value)


@pytest.mark.parametrize(
    ("passes", "options", "expected"),
    [
        (
            [USUAL, USUAL, OTHER, OTHER, (), USUAL, (*USUAL, *USUAL), USUAL],
            (),
            [3, 1, 2, 1, 1, 3, 3, 1],
        ),
        ([USUAL, OTHER] * 3, ("cuda", True), [3, 3, 1, 1, 1, 1]),
        ([USUAL, USUAL], ("cpu",), [3, 3]),  # where a rank could wait for ever
    ],
    ids=["as the last one", "with and without gradients", "on CPUs"],
)
def test_a_pass_like_the_last_one_takes_one_message(on_two_ranks, passes, options, expected):
    for counts in on_two_ranks(messages, passes, *options):
        assert counts == expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([USUAL, OTHER], [USUAL, USUAL], "rank 0 called c, where rank 1 called b"),
        ([USUAL, USUAL], [USUAL, USUAL[:1]], "rank 0 called b, where rank 1 ended its pass"),
        ([USUAL, (*USUAL, "called c")], [USUAL, USUAL], "rank 0 called c, where rank 1 ended"),
    ],
)
def test_a_rank_that_leaves_the_path_alone_is_named(on_two_ranks, first, second, expected):
    for message in on_two_ranks(refused, [first, second]):
        assert expected in message


def alternating(rank: int) -> list[int]:
    """Return the messages of updates of two micro-batches, the last of which exchanges."""
    agreement, sent = Agreement.of("fsdp", torch.device("cuda")), []
    compare = agreement._compare
    agreement._compare = lambda: (sent.append(1), compare())
    counts = []
    for _ in range(3):
        begun = len(sent)
        for agreement.exchanges in (False, True):
            follow(agreement, OTHER if agreement.exchanges else USUAL)
        counts.append(len(sent) - begun)
    agreement.close()
    return counts


def test_micro_batches_that_exchange_no_gradients_have_a_path_of_their_own(on_two_ranks):
    """Else each pass would leave the path of the one before, and compare each use."""
    for counts in on_two_ranks(alternating):
        assert counts == [6, 2, 2]
