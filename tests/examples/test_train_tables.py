"""If these fail, networks for tables learn nothing, from rows they are judged by, or wrongly."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from columns import from_frame
from train_tables import Tables, split

from trainables import Training, Worker

SHORT = Training(schedule="cosine", warmup=0.1)


def last(task: Tables, steps: int) -> dict[str, float]:
    """Return the metrics of the last report."""
    worker = Worker.alone(until=steps, training=SHORT)
    task.train(worker)
    return worker.reports[-1].metrics


@pytest.mark.parametrize("kind", ["mlp", "resnet", "ft"])
def test_classes_are_learned_by_each_network(kind):
    metrics = last(Tables(kind=kind, width=16, depth=1, lr=1e-2), 4)
    assert metrics["val/accuracy"] > 0.85  # the larger class has 0.63
    assert metrics["val/loss"] < 0.5  # of one that only knows the shares: 0.66


@pytest.mark.parametrize("kind", ["mlp", "ft"])
def test_numbers_are_learned_and_judged_in_their_own_units(kind):
    task = Tables(data="diabetes", kind=kind, width=16, depth=1, lr=1e-2)
    metrics = last(task, 6)
    assert metrics["val/r2"] > 0.3  # the mean has 0 at most
    table = task.table()
    _, target_B = table.data.validation.batch(torch.arange(len(table.data.validation)))
    own = target_B.double() * table.deviation
    assert metrics["val/rmse"] == pytest.approx(metrics["val/loss"] ** 0.5 * table.deviation)
    assert metrics["val/r2"] == pytest.approx(1 - metrics["val/rmse"] ** 2 / float(own.var(False)))


def shop(rows: int = 120) -> pd.DataFrame:
    """Write a table of prices by kind and weight, with some weights missing."""
    rng = np.random.default_rng(0)
    kind = rng.choice(["tea", "salt", "rice"], rows)
    weight = rng.normal(5, 2, rows)
    price = np.select([kind == "tea", kind == "salt"], [9.0, 1.0], 4.0) + weight
    weight[::7] = np.nan
    return pd.DataFrame({"kind": kind, "weight": weight, "price": price})


@pytest.fixture
def goods(tmp_path: Path) -> str:
    file = tmp_path / "goods.csv"
    shop().to_csv(file, index=False)
    return str(file)


@pytest.mark.parametrize("kind", ["mlp", "ft"])
def test_a_file_of_ones_own_is_learned_by_its_categories(goods, kind):
    task = Tables(data=goods, target="price", kind=kind, width=16, depth=1, lr=2e-2, batch=16)
    assert last(task, 8)["val/r2"] > 0.7  # weight alone explains a quarter


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.99])
def test_each_class_is_learned_and_judged_in_the_same_share(share):
    labels = ["a"] * 100 + ["b"] * 20 + ["c"] * 2
    columns = from_frame(pd.DataFrame({"x": np.arange(122.0), "y": labels}), "y", "auto")
    train, judging = split(columns, share)
    assert sorted([*train, *judging]) == list(range(122))
    for place, count in enumerate((100, 20, 2)):
        wanted = min(count - 1, max(1, round(share * count)))
        assert (columns.target_R[judging] == place).sum() == wanted


def test_the_order_of_a_files_rows_changes_no_trial(tmp_path):
    files = [tmp_path / "one.csv", tmp_path / "other.csv"]
    shop().to_csv(files[0], index=False)
    shop().sample(frac=1, random_state=3).to_csv(files[1], index=False)
    curves = [last(Tables(data=str(file), target="price", width=8), 2) for file in files]
    assert curves[0]["val/loss"] == curves[1]["val/loss"]
    assert curves[0]["train/loss"] == curves[1]["train/loss"]


@pytest.mark.parametrize("precision", ["bf16-true", "bf16-mixed"])
def test_coarse_formats_learn_as_well(goods, precision):
    worker = Worker.alone(until=8, training=replace(SHORT, precision=precision))
    task = Tables(data=goods, target="price", kind="ft", width=16, depth=1, lr=1e-2, batch=16)
    task.train(worker)
    assert worker.reports[-1].metrics["val/r2"] > 0.6
