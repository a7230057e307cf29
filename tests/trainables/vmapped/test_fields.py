"""Fields that differ among trials. If these fail, all trials train with the first one's numbers."""

from dataclasses import dataclass
from functools import cached_property

import pytest
import torch

from trainables.vmapped.fields import Fields
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
