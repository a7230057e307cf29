"""A small model of characters on a mixture of four texts, held against a fifth.

It is to predict the pages of Python's own help, which are prose about code. It learns from Python's
source, PyTorch's manual, scikit-learn's essays on data sets and its tables of numbers. All of
these are on your disk already.

Axes: B samples, T characters before each, and the one to predict.
"""

import sysconfig
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics

import sklearn.datasets
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from trainables.worker import Params, Worker

LENGTH, BATCH, UPDATES = 12, 512, 100  # updates of a step
BUNDLED = Path(sklearn.datasets.__file__).parent
FILES = {
    "code": sorted(Path(sysconfig.get_path("stdlib")).glob("[a-d]*.py")),
    "manual": [Path(torch.__file__).with_name("_torch_docs.py")],
    "essays": sorted(BUNDLED.glob("descr/*.rst")),
    "tables": sorted(BUNDLED.glob("data/*.csv")),
}


def train(params: Params, worker: Worker) -> None:
    """Report val/loss on the help, in nats for a character."""
    mix: dict[str, float] = params["mix"]  # {"code": 0.3, "manual": 0.0, ...}
    torch.set_num_threads(1)  # faster for a model so small
    torch.manual_seed(worker.seed)
    embedding, hidden = nn.Embedding(128, 16), nn.Linear(16 * LENGTH, 128)
    model = nn.Sequential(embedding, nn.Flatten(), hidden, nn.ReLU(), nn.Linear(128, 128))
    optimizer = torch.optim.AdamW(model.parameters(), lr=params["lr"])
    held_out = windows("help", torch.arange(0, len(read("help")) - LENGTH, 20))
    for step in worker.steps():
        for _ in range(UPDATES):
            source_B = torch.multinomial(torch.tensor([*mix.values()]), BATCH, replacement=True)
            counts = source_B.bincount(minlength=len(mix)).tolist()
            letters = torch.cat([draw(source, n) for source, n in zip(mix, counts, strict=True)])
            optimizer.zero_grad()
            mean_loss(model, letters).backward()
            optimizer.step()
        with torch.no_grad():
            worker.report(step, {"val/loss": float(mean_loss(model, held_out))})


@cache
def read(source: str) -> Tensor:
    """Return the characters of a source as numbers, 0 for all that are not ASCII."""
    if source == "help":  # what `help("for")` says
        text = "".join(topics[name] for name in sorted(topics))
    else:
        text = "".join(path.read_text(errors="ignore") for path in FILES[source])
    return torch.tensor([ord(letter) if letter.isascii() else 0 for letter in text])


def windows(source: str, start_B: Tensor) -> Tensor:
    return read(source)[start_B[:, None] + torch.arange(LENGTH + 1)]


def draw(source: str, count: int) -> Tensor:
    return windows(source, torch.randint(len(read(source)) - LENGTH, (count,)))


def mean_loss(model: nn.Module, letters: Tensor) -> Tensor:
    return cross_entropy(model(letters[:, :-1]), letters[:, -1])
