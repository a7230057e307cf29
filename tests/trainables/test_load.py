import hashlib
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
import pytest

from trainables import Training, Worker
from trainables.load import CodeChanged, LoadError, Sources, bind, resolve, source_hash, training_of

SOURCE = """
from dataclasses import dataclass
from sibling_of_trainable import STEPS

def train(params, worker):
    for step in worker.steps():
        worker.report(step, {"loss": params["lr"] * STEPS})

@dataclass(frozen=True)
class Net:
    lr: float = 0.1
    def train(self, worker):
        worker.report(1, {"loss": self.lr})

NOTHING = 3
"""


@dataclass(frozen=True)
class Net:
    lr: float = 0.1
    momentum: float = 0.9
    width: int = 8

    def train(self, worker):
        worker.report(1, {"lr": self.lr, "momentum": self.momentum, "width": self.width})


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "sibling_of_trainable.py").write_text("STEPS = 2")
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


def reported(trainable, params) -> dict[str, float]:
    worker = Worker.alone(params)
    bind(trainable, params)(worker)
    return worker.reports[0].metrics


def test_a_file_gives_functions_and_classes_and_finds_its_siblings(file):
    assert reported(resolve(f"{file}:train"), {"lr": 0.5}) == {"loss": 1.0}
    assert reported(resolve(f"{file}:Net"), {"lr": 0.5}) == {"loss": 0.5}


def test_a_file_is_loaded_once_until_it_changes(file):
    first = resolve(f"{file}:Net")
    assert resolve(f"{file}:Net") is first
    file.write_text(SOURCE.replace("0.1", "0.2"))
    later = time.time() + 5  # Python tells files of one size apart by whole seconds
    os.utime(file, (later, later))
    assert resolve(f"{file}:Net")().lr == 0.2


def test_a_pickle_that_was_changed_is_never_loaded(tmp_path):
    """Loading it could run any code; its name is the SHA-256 of the original content."""
    path = tmp_path / f"{hashlib.sha256(cloudpickle.dumps(len)).hexdigest()}.pkl"
    path.write_bytes(cloudpickle.dumps(max))
    with pytest.raises(LoadError, match="the file was changed after it was written"):
        resolve(f"pickle:{path}")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("trainables.zoo.digits:DigitCNN", "has no DigitCNN; the nearest is DigitsCNN"),
        ("trainables.zoo.nothing:Net", "No module named 'trainables.zoo.nothing'; install it"),
        ("DigitsCNN", r"write module:Name or path/to/file\.py:Name"),
        ("no/such/file.py:Net", "there is no file /"),
        ("pickle:no/such/file", "there is no file /"),
        ("trainables.load:PICKLE", "is str; name a class or function"),
    ],
)
def test_what_is_not_there_is_said(reference, message):
    with pytest.raises(LoadError, match=message):
        resolve(reference)


def test_a_users_missing_import_is_the_users_error(file):
    file.write_text("import no_such_package_of_mine")
    with pytest.raises(ModuleNotFoundError, match="no_such_package_of_mine"):
        resolve(f"{file}:train")


def test_the_hash_is_that_of_the_source(file, tmp_path):
    first = source_hash(f"{file}:train")
    assert source_hash(f"{file}:Net") == first
    file.write_text(SOURCE + "# changed")
    assert source_hash(f"{file}:train") != first
    assert len(source_hash("trainables.zoo.digits:DigitsCNN")) == 64


def test_fields_take_parameters_and_keep_defaults_where_those_are_inactive():
    metrics = reported(Net, {"lr": 0.5, "width": 64, "training.clip": 1.0})
    assert metrics == {"lr": 0.5, "momentum": 0.9, "width": 64.0}


def test_a_function_of_another_shape_is_refused():
    with pytest.raises(
        LoadError, match=r"\(params, worker\), or \(config\) alone; it takes \(a, b, c\)"
    ):
        bind(lambda a, b, c: None, {})


def test_a_class_that_cannot_train_is_refused():
    @dataclass(frozen=True)
    class Idle:
        lr: float = 0.1

    with pytest.raises(LoadError, match=r"Idle must be a dataclass with a method train"):
        bind(Idle, {})


def test_training_options_come_from_parameters():
    base = Training("ddp", clip=1.0)
    params = {"lr": 0.1, "training.accumulate": 4, "training.precision": "bf16-mixed"}
    assert training_of(base, params) == Training("ddp", "bf16-mixed", accumulate=4, clip=1.0)


def test_a_source_that_changed_is_told_and_one_that_did_not_is_read_once(tmp_path, monkeypatch):
    file = tmp_path / "mine.py"
    file.write_text("def train(params, worker): pass\n")
    name = f"{file}:train"
    sources = Sources({name: source_hash(name)})
    sources.check()
    monkeypatch.setattr(Path, "read_bytes", None)  # it would be read again
    sources.check()
    monkeypatch.undo()
    file.touch()
    sources.check()  # as `git checkout` may do: another time, the same content
    file.write_text("def train(params, worker): return 1\n")
    with pytest.raises(CodeChanged, match=r"mine\.py changed while the sweep ran.*--accept-code"):
        sources.check()
    file.unlink()
    with pytest.raises(CodeChanged, match="can't be read any more"):
        sources.check()
