"""If these fail, a table is read wrongly, or one that cannot be learned is not refused."""

import numpy as np
import pandas as pd
import pytest
from columns import BUNDLED, from_frame, read


@pytest.fixture
def homes(tmp_path):
    """Write a file with numbers, categories, missing values, and an empty column."""
    file = tmp_path / "homes.csv"
    file.write_text(
        "area, street,  garden,empty,price\n"
        "71.5,Elm,True,,300\n"
        "60,?,False,,250.5\n"
        ",Oak,True,,410\n"
        "44,Elm,False,,199\n"
    )
    return file


def test_a_file_is_numbers_categories_and_a_target(homes):
    columns = read(str(homes), "price", "auto")
    assert columns.numbers == ("area", "garden")
    assert columns.categories == ("street",)
    assert columns.classes == ()
    rows = zip(columns.target_R, columns.number_RN.tolist(), columns.category_RK, strict=True)
    features = {target: (*map(str, numbers), *kinds) for target, numbers, kinds in rows}
    assert features == {
        300.0: ("71.5", "1.0", "Elm"),
        250.5: ("60.0", "0.0", None),
        410.0: ("nan", "1.0", "Oak"),
        199.0: ("44.0", "0.0", "Elm"),
    }


@pytest.mark.parametrize(
    ("values", "predicts", "classes"),
    [
        (["b", "a", "b", "a"], "auto", ("a", "b")),
        ([True, False, True, False], "auto", ("False", "True")),
        ([10, 9, 10, 9], "auto", ("9", "10")),
        ([10, 9, 10, 9], "number", ()),
        ([0.5, 1.5, 0.5, 1.5], "auto", ()),
        ([0.5, 1.5, 0.5, 1.5], "class", ("0.5", "1.5")),
        ([*range(21)] * 2, "auto", ()),
    ],
)
def test_text_and_few_whole_numbers_are_classes(values, predicts, classes):
    frame = pd.DataFrame({"x": np.arange(len(values)), "y": values})
    columns = from_frame(frame, "y", predicts)
    assert columns.classes == classes
    targets = [columns.classes[int(at)] for at in columns.target_R] if classes else columns.target_R
    given = {x: str(y) if classes else y for x, y in zip(frame["x"], values, strict=True)}
    assert dict(zip(columns.number_RN[:, 0], targets, strict=True)) == given


@pytest.mark.parametrize(
    ("name", "rows", "classes"),
    [("breast_cancer", 569, 2), ("diabetes", 442, 0), ("iris", 150, 3), ("wine", 178, 3)],
)
def test_tables_of_scikit_learn_are_read_by_name(name, rows, classes):
    columns = read(name, None, "auto")
    assert (len(columns), len(columns.classes)) == (rows, classes)
    assert name in BUNDLED
