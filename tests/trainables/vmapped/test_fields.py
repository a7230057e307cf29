"""Fields that differ among trials. If these fail, all trials train with the first one's numbers."""

from dataclasses import dataclass
from functools import cached_property

import pytest
import torch
from torch.nn.functional import cross_entropy

from trainables.vmapped.fields import Fields, TensorLabelSmoothing
from trainables.vmapped.refusals import Unbatchable


@dataclass(frozen=True)
class Weighted:
    """Stands for a task: only its fields count here."""

    weight: float = 1.0
    smoothing: float = 0.0
    name: str = "a"
    flag: bool = False

    @cached_property
    def doubled(self):
        return 2 * self.weight


LIKE = torch.zeros(1, dtype=torch.float64)


def test_a_field_that_differs_reads_as_the_values_of_the_present_call():
    tasks = [Weighted(weight=1.0), Weighted(weight=3.0)]
    fields = Fields(tasks, LIKE)
    assert fields.values_K["weight"].tolist() == [1.0, 3.0]
    assert fields.values_K["weight"].dtype == torch.float64
    fields.take({"weight": fields.values_K["weight"][1]})
    assert fields.task.weight.item() == 3.0
    assert fields.task.smoothing == 0.0
    assert fields.read_fields == {"weight"}
    assert isinstance(fields.task, Weighted)


def test_what_one_task_has_cached_is_not_another_s():
    first = Weighted(weight=1.0)
    assert first.doubled == 2.0
    fields = Fields([first, Weighted(weight=3.0)], LIKE)
    fields.take({"weight": torch.tensor(3.0)})
    assert fields.task.doubled.item() == 6.0
    assert first.doubled == 2.0


@pytest.mark.parametrize("changed", [{"name": "b"}, {"flag": True}])
def test_what_is_no_number_may_differ_only_if_nobody_reads_it(changed):
    fields = Fields([Weighted(), Weighted(**changed)], LIKE)
    [name] = changed
    with pytest.raises(Unbatchable, match=f"field {name} differs among the trials"):
        getattr(fields.task, name)


def test_a_tensor_of_label_smoothing_is_that_of_torch_s_number():
    scores = torch.randn(5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 1, 0])
    for share in (0.0, 0.1, 1.0):
        with TensorLabelSmoothing():
            smoothed = cross_entropy(scores, labels, label_smoothing=torch.tensor(share))
        expected = cross_entropy(scores, labels, label_smoothing=share)
        torch.testing.assert_close(smoothed, expected, check_dtype=False)
