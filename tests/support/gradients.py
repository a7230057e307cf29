"""Gradients beside central differences."""

from collections.abc import Iterable
from typing import Any

import numpy as np


def check_gradient(
    function: Any,
    x_MD: np.ndarray,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    columns: Iterable[int] | None = None,
) -> None:
    """Hold what `with_gradient` returns at M points of D columns against values around them.

    Args:
        columns: those in which the points are moved; None: all.
    """
    value_M, gradient_MD = function.with_gradient(x_MD)
    np.testing.assert_allclose(value_M, function(x_MD), rtol=1e-9)
    for column in range(x_MD.shape[1]) if columns is None else columns:
        step_D = 1e-6 * np.eye(x_MD.shape[1])[column]
        slope_M = (function(x_MD + step_D) - function(x_MD - step_D)) / 2e-6
        np.testing.assert_allclose(gradient_MD[:, column], slope_M, rtol=rtol, atol=atol)
