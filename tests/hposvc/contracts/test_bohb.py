"""BOHB: the brackets of Hyperband, filled by a model."""

import math

import pytest
from simulated_sweeps import make_spec


@pytest.mark.parametrize("search", ["gp", "tpe"])
def test_bracket_two_is_proposed_from_what_bracket_one_found(lab, search):
    """Run a sweep on two slopes: the model proposes where the losses of bracket one were low."""
    lows = []
    for curve in ("falling", "rising"):
        spec = make_spec(
            scheduler="bohb",
            search={"method": search},
            trials={"max": 14, "parallel": 1},
            engine={"type": "simulate", "curve": f"hyperband_reference:{curve}"},
        )
        trials = list(lab.run(spec, curve).trials.values())
        second = sorted(math.log10(trial.params["lr"]) for trial in trials[9:])
        lows.append(second[2])
    assert lows[1] < -3.5 < -2.5 < lows[0]
