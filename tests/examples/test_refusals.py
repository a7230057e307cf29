"""What an example cannot do it says, with what to give instead."""

from collections.abc import Callable

import columns
import pytest
from gpt import Sizes
from gpt_sampling import Sampling
from tabular_networks import Shape
from train_glosses import Glosses
from train_gpt import GptText
from train_images import Images
from train_llm import CausalLM
from train_tables import Tables

from trainables import Task, Worker


def trains(kind: type[Task], **options: object) -> Callable[[], object]:
    return lambda: kind(**options).train(Worker.alone())


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: columns.read("win", None, "auto"), "no file here; .* nearest is 'wine'"),
        (lambda: Shape("tree"), "kind is 'tree'; choose one of mlp, resnet, ft"),
        (lambda: Shape("ft", width=30), "of ft the width is a multiple"),
        (lambda: Sizes(11, 12, 2, width=10, heads=2), "give a width that is a multiple of 4"),
        (lambda: Sampling(top_p=0.0), "top_p is 0.0; give more than 0"),
        (lambda: GptText(prompt=""), "prompt is empty"),
        (lambda: GptText(text="nowhere.txt").load_data(), "'nowhere.txt', which is no file here"),
        (lambda: Images(kind="rnn"), "kind is 'rnn'; choose one of cnn, resnet, vit"),
        (trains(Tables, target="malignant"), "breast_cancer has its own, so leave it out"),
        (trains(Tables, validation=1.0), "validation is 1.0; give a share between 0 and 1"),
        (trains(Glosses, targets="*.qeury"), r"'\*.qeury' fits none; there are .*query"),
        (trains(CausalLM, model="no/such", text=__file__), "'no/such', .* cannot be loaded"),
    ],
)
def test_what_cannot_work_is_named(attempt, message):
    with pytest.raises(ValueError, match=message):
        attempt()
