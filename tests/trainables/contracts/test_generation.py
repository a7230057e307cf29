"""Texts that are generated in evaluation. If these fail, an exact match depends on the ranks, or
ranks that share a model wait for each other.

Axes: N samples, B samples of a batch, T tokens of a sample.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import pytest
import torch
from tasks import curves, learned, refusals
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from trainables import Training
from trainables.data import Batch, Data, Tensors
from trainables.parallel.agreement import UnequalUse
from trainables.task import Task

transformers = pytest.importorskip("transformers")

WORDS, PROMPT, LONGEST = 11, 3, 6  # tokens: in the vocabulary, of a prompt, of an answer
END = 0  # the last token of an answer, and what follows it


@dataclass(frozen=True)
class Counting(Task):
    """Learn to count on from a prompt to the last word; short answers begin at large numbers."""

    lr: float = 0.03
    batch: int = 5
    together: bool = True  # ranks go on until the last one is done

    def build_model(self) -> nn.Module:
        return transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=WORDS,
                hidden_size=16,
                intermediate_size=32,
                num_hidden_layers=2,
                num_attention_heads=2,
                pad_token_id=END,
                eos_token_id=END,
                bos_token_id=None,
                use_cache=True,
            )
        )

    def load_data(self) -> Data:
        begin_N = torch.arange(1, 8).repeat(9)
        text_NT = begin_N[:, None] + torch.arange(PROMPT + LONGEST)
        text_NT = text_NT.where(text_NT < WORDS, END)
        return Data(Tensors(text_NT[:56]), Tensors(text_NT[56:]))

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        (text_BT,) = batch
        scores_BTV = model(text_BT).logits
        return cross_entropy(scores_BTV[:, :-1].mT, text_BT[:, 1:], reduction="none")

    def predict(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        (text_BT,) = batch
        found_BT = model.generate(
            text_BT[:, :PROMPT],
            attention_mask=torch.ones_like(text_BT[:, :PROMPT]),
            max_new_tokens=LONGEST,
            do_sample=False,
            synced_gpus=self.together and torch.distributed.is_initialized(),
        )[:, PROMPT:]
        answer_BT = text_BT[:, PROMPT:]
        return {"found": pad(found_BT, (0, LONGEST - found_BT.shape[1])), "right": answer_BT}

    def score(self, predictions: Mapping[str, Tensor]) -> Mapping[str, float]:
        found_NT, right_NT = predictions["found"], predictions["right"]
        pairs = [
            (pairs_of(found.tolist()), pairs_of(right.tolist()))
            for found, right in zip(found_NT, right_NT, strict=True)
        ]
        hits = sum((found & right).total() for found, right in pairs)
        return {
            "exact_match": float((found_NT == right_NT).all(dim=1).double().mean()),
            "bigram_precision": hits / sum(found.total() for found, _ in pairs),
        }


def pairs_of(tokens: list[int]) -> Counter[tuple[int, int]]:
    """Count the bigrams of a text, as BLEU does."""
    return Counter(pairwise(tokens))


def scores(reports: list[dict[str, Any]]) -> list[tuple[float, float]]:
    return [(report["val/exact_match"], report["val/bigram_precision"]) for report in reports]


@pytest.mark.long
def test_greedy_texts_score_alike_on_one_rank_and_on_two(on_two_ranks: Callable[..., list[Any]]):
    trainings = [Training("ddp", "64-true"), Training("fsdp", "64-true")]
    expected = scores(learned(Counting(), trainings[0], 4))
    assert 0.0 < expected[-1][0] <= 1.0  # the model has learned some texts, in unlike lengths
    assert len(set(expected)) > 1
    for reports in on_two_ranks(curves, Counting(), trainings, 2, 4)[0]:
        assert scores(reports) == expected


@pytest.mark.full
@pytest.mark.skipif(find_spec("deepspeed") is None, reason="needs DeepSpeed")
def test_deepspeed_gathers_weights_for_each_token(on_two_ranks: Callable[..., list[Any]]):
    training = Training("deepspeed", zero_stage=3, optimizer="adamw")
    expected = scores(learned(Counting(), training, 2))
    assert scores(on_two_ranks(curves, Counting(), [training], 2, 2)[0][0]) == expected


@pytest.mark.long
def test_ranks_that_share_a_model_and_do_not_go_on_together_are_refused(
    on_two_ranks: Callable[..., list[list[str]]],
):
    runs = [(Counting(together=False), Training("fsdp"))]
    for (text,) in on_two_ranks(refusals, runs, UnequalUse):
        assert "equally often on every rank, or choose ddp or zero1" in text
