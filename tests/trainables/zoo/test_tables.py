"""If these fail, networks for tables learn nothing, from rows they are judged by, or wrongly."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from tasks import curve
from torch import Tensor

from trainables import Training, Worker
from trainables.zoo.columns import arranged
from trainables.zoo.encoding import OTHER, fit
from trainables.zoo.tables import Tables, prepare, split

SHORT = Training(schedule="cosine", warmup=0.1)


def last(task: Tables, steps: int) -> dict[str, float]:
    """What is reported in the end."""
    worker = Worker.alone(until=steps, training=SHORT)
    task.train(worker)
    return worker.reports[-1].metrics


@pytest.mark.parametrize("kind", ["mlp", "resnet", "ft"])
def test_classes_are_learned_by_each_network(kind):
    found = last(Tables(kind=kind, width=16, depth=1, lr=1e-2), 4)
    assert found["val/accuracy"] > 0.85  # the larger class has 0.63
    assert found["val/loss"] < 0.5  # of one that only knows the shares: 0.66


@pytest.mark.parametrize("kind", ["mlp", "ft"])
def test_numbers_are_learned_and_judged_in_their_own_units(kind):
    task = Tables(data="diabetes", kind=kind, width=16, depth=1, lr=1e-2)
    found = last(task, 6)
    assert found["val/r2"] > 0.3  # the mean has 0 at most
    table = task.table()
    _, target_B = table.data.validation.batch(torch.arange(len(table.data.validation)))
    own = target_B.double() * table.deviation
    assert found["val/rmse"] == pytest.approx(found["val/loss"] ** 0.5 * table.deviation)
    assert found["val/r2"] == pytest.approx(1 - found["val/rmse"] ** 2 / float(own.var(False)))


def test_quantiles_do_not_mind_outliers():
    x = np.random.default_rng(0).normal(size=200)
    frames = [pd.DataFrame({"x": values, "y": x}) for values in (x, np.sinh(8 * x))]
    tables = [arranged(frame, "y", "auto") for frame in frames]
    tame, wild = (fit(table, "quantile").encode(table)[:, 0].sort().values for table in tables)
    torch.testing.assert_close(tame, wild, atol=1e-4, rtol=0)


def test_yes_and_no_are_a_deviation_from_their_mean_by_either_scaling():
    table = arranged(pd.DataFrame({"x": [0, 1] * 9, "y": range(18)}), "y", "number")
    for scaling in ("standard", "quantile"):
        assert fit(table, scaling).encode(table).unique().tolist() == pytest.approx([-1, 1])


def shop(rows: int = 120) -> pd.DataFrame:
    """Prices by kind of thing and by weight, which is sometimes missing."""
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


def test_training_rows_alone_say_how_numbers_are_scaled():
    train = pd.DataFrame({"x": [1.0, 3.0, None, 5.0], "same": 2.0, "y": [0.1, 0.2, 0.3, 0.4]})
    code = fit(arranged(train, "y", "auto"), "standard")
    encoded = code.encode(arranged(train, "y", "auto"))
    assert code.layout.numbers == 3  # x, same, and where x is missing
    torch.testing.assert_close(encoded[:, 0].sum(), torch.tensor(0.0))
    assert sorted(encoded[:, 2].tolist()) == [0.0, 0.0, 0.0, 1.0]
    assert encoded[encoded[:, 2] == 1.0, 0].tolist() == [0.0]
    columns = arranged(train, "y", "auto").pick(np.array([0]))
    other = code.encode(replace(columns, number_RN=np.array([[9.0, 3.0]])))
    assert other[0].tolist() == pytest.approx([6 / (8 / 3) ** 0.5, 1.0, 0.0])


def test_new_and_rare_kinds_share_a_place_and_missing_is_a_kind():
    kinds = ["tea", "tea", "tea", "salt", "salt", "once", None, None]
    frame = pd.DataFrame({"kind": kinds, "y": np.arange(8) / 10})
    columns = arranged(frame, "y", "auto")
    code = fit(columns, "standard")
    assert code.layout.kinds == (4,)
    asked = np.array(["tea", "salt", "once", "never", None], dtype=object)[:, None]
    found = code.encode(
        replace(columns, category_RK=asked, number_RN=np.empty((5, 0)), target_R=asked)
    )
    assert found[:, 0].tolist() == [1.0, 2.0, OTHER, OTHER, 3.0]


def test_a_column_of_very_many_kinds_keeps_the_frequent_ones():
    frame = pd.DataFrame({"kind": [str(at // 2) for at in range(600)] + ["0"] * 5, "y": 0.5})
    frame.loc[0, "y"] = 0.6
    code = fit(arranged(frame, "y", "auto"), "standard")
    assert code.layout.kinds == (256,)
    assert code.codes[0]["0"] == 1


def test_columns_without_a_training_value_are_left_out():
    train = arranged(
        pd.DataFrame({"x": [1.0, None], "z": [2.0, 3.0], "y": [0.1, 0.5]}), "y", "auto"
    )
    nothing = replace(train, number_RN=np.array([[np.nan, 2.0], [np.nan, 3.0]]))
    for scaling in ("standard", "quantile"):
        code = fit(nothing, scaling)
        assert code.layout.numbers == 1
        assert code.encode(train).shape == (2, 1)


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.99])
def test_each_class_is_learned_and_judged_in_the_same_share(share):
    labels = ["a"] * 100 + ["b"] * 20 + ["c"] * 2
    columns = arranged(pd.DataFrame({"x": np.arange(122.0), "y": labels}), "y", "auto")
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


STRATEGIES = ("ddp", "fsdp", "tensor", "pipeline")


def on_rank(rank: int, data: str) -> list[list[dict[str, float]]]:
    return [learned(rank, data, name) for name in STRATEGIES]


def learned(rank: int, data: str, name: str) -> list[dict[str, float]]:
    one = Worker.alone(until=2, training=Training(name, precision="64-true", accumulate=2))
    worker = replace(one, rank=rank, world_size=1 if name == "single" else 2)
    Tables(data=data, target="price", kind="ft", width=8, heads=2, dropout=0.0).train(worker)
    return curve(worker)


def test_ranks_learn_what_one_process_learns(goods, on_two_ranks):
    found, _ = on_two_ranks(on_rank, goods)
    alone = learned(0, goods, "single")
    for name, reports in zip(STRATEGIES, found, strict=True):
        for mine, other in zip(reports, alone, strict=True):
            for key in ("train/loss", "val/loss", "val/rmse", "val/r2"):
                assert mine[key] == pytest.approx(other[key], abs=1e-9), (name, key)


@pytest.mark.parametrize("precision", ["bf16-true", "bf16-mixed"])
def test_coarse_formats_learn_as_well(goods, precision):
    worker = Worker.alone(until=8, training=replace(SHORT, precision=precision))
    task = Tables(data=goods, target="price", kind="ft", width=16, depth=1, lr=1e-2, batch=16)
    task.train(worker)
    assert worker.reports[-1].metrics["val/r2"] > 0.6


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kind": "tree"}, "kind is 'tree'; choose one of mlp, resnet, ft"),
        ({"scaling": "none"}, "scaling is 'none'; choose one of standard, quantile"),
        ({"predicts": "classes"}, "predicts is 'classes'; choose one of auto, class, number"),
        ({"validation": 1.0}, "validation is 1.0; give a share between 0 and 1"),
        ({"target": "malignant"}, "breast_cancer has its own, so leave it out"),
        ({"data": "brest_cancer"}, "no file here; .* the nearest is 'breast_cancer'"),
    ],
)
def test_what_cannot_work_is_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        Tables(**wrong).train(Worker.alone())


def test_training_rows_of_one_target_are_refused(tmp_path):
    file = tmp_path / "flat.csv"
    pd.DataFrame({"x": range(3), "y": [0.5, 0.5, 1.5]}).to_csv(file, index=False)
    with pytest.raises(ValueError, match=r"validation is 0\.9: the 1 training rows that it leaves"):
        prepare(str(file), "y", "auto", "standard", 0.9)


def encoded_rows(task: Tables) -> Tensor:
    data = task.table().data
    return torch.cat(
        [part.batch(torch.arange(len(part)))[0] for part in (data.train, data.validation)]
    )


def test_no_row_is_lost(goods):
    assert len(encoded_rows(Tables(data=goods, target="price"))) == 120
