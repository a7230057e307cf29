"""Columns of tables as numbers."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from columns import from_frame
from encoding import OTHER, fit


def test_quantiles_do_not_mind_outliers():
    x = np.random.default_rng(0).normal(size=200)
    frames = [pd.DataFrame({"x": values, "y": x}) for values in (x, np.sinh(8 * x))]
    tables = [from_frame(frame, "y", "auto") for frame in frames]
    tame, wild = (fit(table, "quantile").encode(table)[:, 0].sort().values for table in tables)
    torch.testing.assert_close(tame, wild, atol=1e-4, rtol=0)


def test_training_rows_alone_say_how_numbers_are_scaled():
    train = pd.DataFrame({"x": [1.0, 3.0, None, 5.0], "same": 2.0, "y": [0.1, 0.2, 0.3, 0.4]})
    code = fit(from_frame(train, "y", "auto"), "standard")
    encoded = code.encode(from_frame(train, "y", "auto"))
    assert code.layout.numbers == 3  # x, same, and where x is missing
    torch.testing.assert_close(encoded[:, 0].sum(), torch.tensor(0.0))
    assert sorted(encoded[:, 2].tolist()) == [0.0, 0.0, 0.0, 1.0]
    assert encoded[encoded[:, 2] == 1.0, 0].tolist() == [0.0]
    columns = from_frame(train, "y", "auto").pick(np.array([0]))
    other = code.encode(replace(columns, number_RN=np.array([[9.0, 3.0]])))
    assert other[0].tolist() == pytest.approx([6 / (8 / 3) ** 0.5, 1.0, 0.0])


def test_new_and_rare_kinds_share_a_place_and_missing_is_a_kind():
    kinds = ["tea", "tea", "tea", "salt", "salt", "once", None, None]
    frame = pd.DataFrame({"kind": kinds, "y": np.arange(8) / 10})
    columns = from_frame(frame, "y", "auto")
    code = fit(columns, "standard")
    assert code.layout.kinds == (4,)
    asked = np.array(["tea", "salt", "once", "never", None], dtype=object)[:, None]
    encoded = code.encode(
        replace(columns, category_RK=asked, number_RN=np.empty((5, 0)), target_R=asked)
    )
    assert encoded[:, 0].tolist() == [1.0, 2.0, OTHER, OTHER, 3.0]


def test_columns_without_a_training_value_are_left_out():
    train = from_frame(
        pd.DataFrame({"x": [1.0, None], "z": [2.0, 3.0], "y": [0.1, 0.5]}), "y", "auto"
    )
    nothing = replace(train, number_RN=np.array([[np.nan, 2.0], [np.nan, 3.0]]))
    for scaling in ("standard", "quantile"):
        code = fit(nothing, scaling)
        assert code.layout.numbers == 1
        assert code.encode(train).shape == (2, 1)
