"""Arguments of a program. If these fail, a script trains with other values than the sweep records.

Null: the argument is left out, which is argparse's own None; Hydra and tyro have a word for it.
True and False are Python's words.
"""

import argparse
import json
import shlex
from dataclasses import dataclass, field

import pytest
import tyro
from hydra import compose, initialize
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from trainables.programs.arguments import groups, names, render

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
VALUES = (
    st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(2**70), 2**70)
    | st.booleans()
    | st.none()
    | TEXTS
)
READ = {"True": True, "False": False}


@given(st.dictionaries(st.sampled_from(["lr", "n", "optimizer.name", "größe", "a_b"]), VALUES))
def test_argparse_gets_back_exactly_the_values(params):
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name, value in params.items():
        kind = READ.__getitem__ if isinstance(value, bool) else type(value)
        parser.add_argument(f"--{name}", type=str if value is None else kind, dest=name)
    assert vars(parser.parse_args(render(["${args}"], params, {}))) == params


HARD = ["a,b", "null", "NULL", "1e3", "-3", ".5", "inf", "NaN", "true", "it's", "'", "''"]
HARD += ["\\", "\\\\", "\\'", "a\\", "${x}", "\\${x}", "${x}\\", "$${x}", "#tag", "", " ", " a "]
HARD += ["a  b", 'say "hi"', "x=y", "(x)", "f(x)", "{a}", "[1, 2]", "{a: 1}", "a&b", "ü ñ", "\t"]
HARD += ["two\nlines", "k:v, w", "~x", "+x", "1_0", "0x1", "a/b.c-d", "resnet-18", "glob(*)"]
PIECES = st.lists(st.sampled_from([*HARD, *"'\"\\ ,${}[]()=:\n.e1+-_aN"]), max_size=6).map("".join)
FOR_HYDRA = st.recursive(
    (VALUES | PIECES).filter(lambda value: value != "???"),  # the word of OmegaConf for no value
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b c", "d:e", "f-1"]), values, max_size=2)
    ),
)


@pytest.fixture(scope="module")
def hydra_application():
    """Let Hydra compose a config of nothing but overrides."""
    with initialize(version_base=None, config_path=None):
        yield


def received(item):
    """Return the parameter that a Hydra application gets by an override."""
    config = compose(overrides=[f"+{item}"])
    return OmegaConf.to_container(config, resolve=True)["optimizer"]["name"]


@given(FOR_HYDRA)
def test_hydra_gets_back_exactly_the_value(hydra_application, value):
    (item,) = render(["${args_no_hyphens}"], {"optimizer.name": value}, {})
    assert repr(received(item)) == repr(value)  # which tells 1 from 1.0 and True


@pytest.mark.parametrize("text", HARD)
def test_hydra_gets_a_text_as_text(hydra_application, text):
    (item,) = render(["${args_no_hyphens}"], {"optimizer.name": text}, {})
    assert received(item) == text


@pytest.mark.parametrize("word", ["adamw", "resnet-18", "data/train.csv", "a_b", "v1.2"])
def test_a_plain_word_has_no_quotes_for_programs_that_are_not_hydras(word):
    assert render(["${args_no_hyphens}"], {"x": word}, {}) == [f"x={word}"]


@given(st.dictionaries(st.sampled_from(["lr", "n", "name"]), VALUES))
def test_json_gives_back_exactly_the_values(params):
    (argument,) = render(["${args_json}"], params, {})
    assert json.loads(argument) == params
    assert render(["--config=${args_json}"], params, {}) == [f"--config={argument}"]


@given(st.dictionaries(st.sampled_from(["lr", "n", "name"]), VALUES))
def test_a_shell_reads_the_same_arguments(params):
    (line,) = render(["python t.py ${args}"], params, {})
    assert shlex.split(line) == ["python", "t.py", *render(["${args}"], params, {})]


@pytest.mark.parametrize(
    ("item", "arguments"),
    [
        ("${args}", ["--lr=1e-05", "--depth=-3", "--name=two words", "--flip=True", "--ema=False"]),
        (
            "${args_no_hyphens}",
            ["lr=1e-05", "depth=-3", "name='two words'", "flip=True", "ema=False", "clip=null"],
        ),
        ("${args_no_boolean_flags}", ["--lr=1e-05", "--depth=-3", "--name=two words", "--flip"]),
        ("--rate=${lr}", ["--rate=1e-05"]),
        ("--out=${HPOSVC_CHECKPOINT_DIR}/x", ["--out=/c/x"]),
        ("--momentum=${momentum}", []),  # inactive
        ("--resume=${HPOSVC_RESTORE_DIR}", []),  # from scratch
        ("$${lr} $5 ${", ["${lr} $5 ${"]),
    ],
)
def test_an_item_becomes(item, arguments):
    params = {
        "lr": 1e-5,
        "depth": -3,
        "name": "two words",
        "flip": True,
        "ema": False,
        "clip": None,
    }
    variables = {"HPOSVC_CHECKPOINT_DIR": "/c", "HOME": "/root"}
    assert render([item], params, variables) == arguments


@pytest.mark.parametrize("bias", [True, False])
def test_flags_are_those_that_argparse_scripts_have(bias):
    params = {"batch_size": 32, "hidden-layers": 2, "use_bias": bias, "clip": None}
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--hidden-layers", type=int)
    parser.add_argument("--use-bias", action="store_true")
    options = parser.parse_args(render(["${args_hyphens}"], params, {}))
    assert vars(options) == {"batch_size": 32, "hidden_layers": 2, "use_bias": bias}
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--hidden-layers", type=int)
    parser.add_argument("--use-bias", action=argparse.BooleanOptionalAction, default=None)
    options = parser.parse_args(render(["${args_hyphens_no}"], params, {}))
    assert vars(options) == {"batch_size": 32, "hidden_layers": 2, "use_bias": bias}
    assert render(["${args}"], {"hidden-layers": 2}, {}) == ["--hidden-layers=2"]
    assert render(["-h${hidden-layers}"], params, {}) == ["-h2"]


@dataclass
class Optimizer:
    """Nested options of a script."""

    use_bias: bool = True
    lr: float = 0.1


@dataclass
class Options:
    """Options of a script."""

    optimizer: Optimizer = field(default_factory=Optimizer)
    verbose: bool = True


@pytest.mark.parametrize("on", [True, False])
def test_switches_of_nested_names_are_those_that_tyro_reads(on):
    params = {"optimizer.use_bias": on, "optimizer.lr": 1e-5, "verbose": on}
    options = tyro.cli(Options, args=render(["${args_tyro}"], params, {}))
    assert options == Options(Optimizer(on, 1e-5), on)


def test_tyro_reads_null_as_none():
    def main(clip: float | None = 1.0) -> None:
        assert clip is None

    tyro.cli(main, args=render(["${args_tyro}"], {"clip": None}, {}))


def test_what_an_item_names_is_known_before_it_runs():
    assert names("a ${lr} b ${HPOSVC_TRIAL} $${x}") == ["lr", "HPOSVC_TRIAL"]


@pytest.mark.parametrize(
    ("item", "arguments"),
    [
        ("${args}", ["--layers", "64", "128", "--names", "--use_bias=True"]),
        ("${args_hyphens}", ["--layers", "64", "128", "--names", "--use-bias"]),
        ("${args_tyro}", ["--layers", "64", "128", "--names", "--use-bias"]),
        ("${args_no_hyphens}", ["layers=[64,128]", "names=[]", "use_bias=True"]),
        ("--layers=${layers}", ["--layers=[64, 128]"]),
        ("sh t.sh ${args}", ["sh t.sh --layers 64 128 --names --use_bias=True"]),
    ],
)
def test_a_list_is_several_arguments_or_json(item, arguments):
    assert render([item], {"layers": [64, 128], "names": [], "use_bias": True}, {}) == arguments


def test_argparse_and_tyro_read_lists():
    params = {"layers": [64, 128], "betas": [0.9, 0.99]}
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, nargs="+")
    parser.add_argument("--betas", type=float, nargs=2)
    assert vars(parser.parse_args(render(["${args}"], params, {}))) == params

    def main(layers: list[int], betas: tuple[float, float]) -> None:
        assert {"layers": layers, "betas": [*betas]} == params

    tyro.cli(main, args=render(["${args_tyro}"], params, {}))


MIXTURE = {"data.mix.web": 0.25, "data.mix.code": 0.75, "data.seed": 3, "lr": 0.1}


@pytest.mark.parametrize(
    ("item", "arguments"),
    [
        ("--mix=${data.mix}", ['--mix={"web": 0.25, "code": 0.75}']),
        ("${data}", ['{"mix": {"web": 0.25, "code": 0.75}, "seed": 3}']),
        ("--web=${data.mix.web}", ["--web=0.25"]),
        ("--books=${data.mix.books}", []),  # not of this trial
        ("${model}", []),
        ("$${data.mix}", ["${data.mix}"]),
    ],
)
def test_the_name_of_a_group_is_an_object_of_its_parameters(item, arguments):
    assert render([item], MIXTURE, {}) == arguments


def test_a_group_is_all_that_comes_before_a_point():
    found = groups(MIXTURE)
    assert found == {
        "data": ["data.mix.web", "data.mix.code", "data.seed"],
        "data.mix": ["data.mix.web", "data.mix.code"],
    }


def test_hydra_gets_shares_one_by_one():
    items = render(["${args_no_hyphens}"], MIXTURE, {})
    assert items[:2] == ["data.mix.web=0.25", "data.mix.code=0.75"]
