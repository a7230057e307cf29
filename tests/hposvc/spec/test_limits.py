"""Changes of a sweep's limits."""

import pytest

from hposvc import spec as specs
from hposvc.errors import SpecError
from hposvc.spec.limits import accepted


def open_spec(**changes):
    return specs.load(
        {
            "trainable": "anywhere:train",
            "metric": {"name": "loss", "goal": "minimize"},
            "parameters": {"lr": {"min": 1e-5, "max": 1e-1}},
            "search": "random",
            "trials": {"max": 3, "parallel": 2},
            **changes,
        }
    )


def test_it_cannot_be_made_longer():
    with pytest.raises(SpecError, match=r"fidelity\.max: can't be given .* `hposvc fork`"):
        accepted(open_spec(), {"fidelity.max": 9})
