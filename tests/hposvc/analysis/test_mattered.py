"""What is ruled out: values that the model was asked about, and no others."""

import numpy as np

from hposvc.analysis.mattered import _ranges


def test_only_values_that_were_asked_about_are_ruled_out():
    grid = (0.0, 0.25, 0.5, 0.75, 1.0)
    out = np.array([True, True, False, True, True])
    words, mask = _ranges("x", grid, out)
    assert words == "x up to 0.25 and x from 0.75"  # the best may be 0.3 or 0.7
    assert mask.tolist() == out.tolist()
