"""Search spaces of Ray Tune become specs of ours."""

from pathlib import Path

import pytest

from hposvc import spec as specs
from hposvc.drafts.imported import reading
from hposvc.errors import SpecError
from hposvc.spec.parsing.document import read_text

SPACE = """\
from ray import tune

space = {
    "lr": tune.loguniform(1e-4, 0.1),
    "layers": tune.randint(1, 9),
    "opt": {"name": tune.choice(["sgd", "adam"]), "betas": [0.9, 0.99]},
    "batch": tune.grid_search([16, 32]),
    "noise": tune.randn(0, 1),
    "momentum": tune.sample_from(lambda spec: 0.9),
    "size": tune.choice([{"n": 2, "w": 64}, {"n": 8, "w": 512}]),
    "head": {"size": tune.grid_search([{"n": 1, "w": 8}, {"n": 2, "w": 16}])},
    "epochs": 9,
}
number = 3
"""


@pytest.fixture
def file(tmp_path):
    place = tmp_path / "mine.py"
    place.write_text(SPACE)
    return place


def test_a_space_of_tune(file):
    imported = reading.convert(Path(f"{file}:space"), None)
    document = read_text(imported.text, "spec")
    specs.load(document)
    assert document.data["parameters"] == {
        "lr": {"min": 0.0001, "max": 0.1, "type": "float", "log": True},
        "layers": {"min": 1, "max": 8, "type": "int"},
        "opt.name": {"values": ["sgd", "adam"]},
        "opt.betas": {"values": [[0.9, 0.99]]},
        "batch": {"values": [16, 32]},
        "noise": {
            **{"min": -3.0, "max": 3.0, "type": "float"},
            "normal": {"mean": 0, "deviation": 1},
        },
        "size": {"values": [{"size.n": 2, "size.w": 64}, {"size.n": 8, "size.w": 512}]},
        "head.size": {
            "values": [{"head.size.n": 1, "head.size.w": 8}, {"head.size.n": 2, "head.size.w": 16}]
        },
        "epochs": 9,
    }
    lost = "\n".join(map(str, imported.lost))
    for word in ("search: grid", "sample_from", "trainable", "metric"):
        assert word in lost


@pytest.mark.parametrize(
    ("name", "message"),
    [("spce", "did you mean 'space'"), ("number", "name the dict"), ("space.x", "cannot be read")],
)
def test_what_is_no_space_is_refused(name, message, file):
    with pytest.raises(SpecError, match=message):
        reading.convert(Path(f"{file}:{name}"), None)
    with pytest.raises(SpecError, match="no such file"):
        reading.convert(Path("nowhere.py:space"), None)


@pytest.mark.parametrize(
    ("code", "trainable"),
    [
        ("def fit(config): ...\ndef draw(spec): ...\n", "{file}:fit"),
        ("def fit(params, data=None): ...\n", "{file}:fit"),
        ("from tune_code import learn as fit\n", "tune_code:learn"),
        ("class Net(tune.Trainable):\n    def setup(self, config): ...\n", "{file}:Net"),
    ],
)
def test_the_function_or_class_of_the_file_is_the_trainable(code, trainable, file, monkeypatch):
    (file.parent / "tune_code.py").write_text("def learn(config): ...\n")
    monkeypatch.syspath_prepend(file.parent)
    file.write_text(SPACE + code)
    imported = reading.convert(Path(f"{file}:space"), None)
    document = read_text(imported.text, "spec")
    assert document.data["trainable"] == trainable.format(file=file)
    assert "trainable" not in "\n".join(map(str, imported.lost))
    specs.check(document.data, {})  # it can be loaded


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a = 1\nraise RuntimeError('set DATA_DIR')\n", 2, "it raised RuntimeError: set DATA_DIR"),
        ("\n\nimport nothere_at_all\n", 3, "it raised ModuleNotFoundError"),
        ("import sys\nsys.exit(3)\n", 2, "it raised SystemExit: 3"),
        ("space = {\n", 1, "it raised SyntaxError"),
    ],
)
def test_a_file_that_raises_is_named_with_its_line(tmp_path, text, line, words):
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(SpecError) as raised:
        reading.convert(Path(f"{file}:space"), None)
    assert f"{raised.value}".startswith(f"{file}:{line}: {words}")
