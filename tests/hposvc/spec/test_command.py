"""Commands as trainables, from the spec's file to the process, without Ray."""

import pytest

from hposvc.errors import SpecError
from hposvc.journal.journal import SweepRow
from hposvc.spec import check, dump, fingerprint, load

SCRIPT = """
import sys, time
lr = float(sys.argv[1].removeprefix("--lr="))
for epoch in range(1, 4):
    print(f"epoch {epoch}: loss={lr / epoch}", flush=True)
    time.sleep(600 if "slow" in sys.argv else 0)
sys.exit("out of data" if "fails" in sys.argv else 0)
"""


@pytest.fixture
def spec(tmp_path, monkeypatch):
    """Return a function that makes a spec of a script in the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)

    def make(*more, **sections):
        return {
            "command": ["python", "train.py", "${args}", *more],
            "collect": {"stdout": r"loss=(?P<loss>\S+)"},
            "metric": {"name": "loss", "goal": "minimize"},
            "parameters": {"lr": {"min": 1e-5, "max": 0.1, "log": True}},
            "fidelity": {"max": 3},
            "trials": {"max": 2},
            "engine": "local",
            **sections,
        }

    return make


def test_a_change_of_the_script_is_seen(spec, tmp_path):
    """Otherwise a resumed sweep would compare the results of two programs."""
    loaded = load(spec())
    row = SweepRow("s-1", "s", "p", 0.0, dump(loaded), fingerprint.describe(loaded))
    fingerprint.check_unchanged(row.id, row.spec, row.code)
    (tmp_path / "train.py").write_text(SCRIPT + "# changed")
    with pytest.raises(SpecError, match=r"command: python train\.py .* changed since s-1 began"):
        fingerprint.check_unchanged(row.id, row.spec, row.code)


@pytest.mark.parametrize(
    "command",
    [
        ["python", "train.py", "--backend", "deepspeed", "${args}"],
        ["python", "torchrun.py", "${args}"],
        ["torchrun", "--node_rank=${RANK}", "--nnodes=${WORLD_SIZE}", "train.py", "${args}"],
        ["sh", "-c", "torchrun --node_rank=$RANK --nnodes=$WORLD_SIZE train.py ${args}"],
    ],
)
def test_ranks_that_start_no_ranks_of_their_own_are_not_refused(spec, command):
    load(spec(command=command, engine="ray", resources={"workers": 2}))
    torchrun = ["torchrun", "train.py", "${args}"]
    load(spec(command=torchrun, engine="ray", resources={"workers": 2}, launch="node"))
    load(spec(command=torchrun, engine="ray", resources={"workers": 1}))


@pytest.mark.parametrize("command", [["${args}"], ["--lr=${lr}"], ["${args_no_hyphens}", "t.py"]])
def test_arguments_without_a_program_are_refused(spec, command):
    with pytest.raises(SpecError, match=r"command\[0\]: is .*no program; write it first"):
        load({**spec(), "command": command})


@pytest.mark.parametrize(
    ("item", "values", "said"),
    [
        ("${args}", [1, "1"], "1 and '1'"),
        ("${args}", ["True", True], "'True' and true"),
        ("--y=${x}", [[1, 2], 1.5, "1.5"], "1.5 and '1.5'"),
        ("--y=${x}-${lr}", [1, "1"], "1 and '1'"),
        ("${args_hyphens}", [False, None], "false and empty (null)"),
        ("${args_tyro}", ["None", None], "'None' and empty (null)"),
        ("python other.py ${args}", [1, "1"], "1 and '1'"),
    ],
)
def test_values_that_are_one_to_the_program_are_refused(spec, item, values, said):
    parameters = {**spec()["parameters"], "x": {"values": values}}
    command = ["python", "train.py", "--lr=${lr}", item]
    with pytest.raises(SpecError) as refused:
        load({**spec(), "command": command, "parameters": parameters})
    (problem,) = refused.value.problems
    assert problem.path == ("parameters", "x")
    assert problem.message == f"{said} become the same argument"


@pytest.mark.parametrize("item", ["${args_no_hyphens}", "${args_json}"])
def test_values_whose_types_the_program_sees_are_taken(spec, item):
    parameters = {**spec()["parameters"], "x": {"values": [1, "1", True, "true", None, "null"]}}
    check({**spec(), "command": ["python", "train.py", item], "parameters": parameters})


FLAGS = """
import argparse, click
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("-n", "--none", type=float)
parser.add_argument("--said-none", type=float, default=None)
parser.add_argument("--wd", type=float, default=0.1)
parser.add_argument("--ema", action="store_true")

@click.command()
@click.option("--clicks", type=int)
@click.option("--some", type=int, default=DEFAULTS["some"])
def main(clicks, some): ...
"""


@pytest.mark.parametrize("name", ["none", "said-none", "clicks"])
def test_null_is_taken_where_the_program_has_none_without_the_flag(spec, tmp_path, name):
    (tmp_path / "train.py").write_text(FLAGS)
    parameters = {**spec()["parameters"], name: {"values": [None, 0.1]}}
    check({**spec(), "parameters": parameters})
    check({**spec(), "parameters": {**spec()["parameters"], name: None}})


ITEMS = [["${args}"], ["--lr=${lr}", "--wd=${x}"], ["x.py ${args}"], ["--wd=${x}-${lr}"]]


@pytest.mark.parametrize("items", ITEMS)
@pytest.mark.parametrize("name", ["wd", "some", "none", "ema", "unknown"])
def test_null_is_refused_where_another_default_may_be_trained(spec, tmp_path, items, name):
    later = "parser.set_defaults(none=3.0)" if name == "none" else ""
    (tmp_path / "train.py").write_text(FLAGS + later)
    name = "x" if "${x}" in items[-1] else name
    for declared in ({"values": [None, 0.1]}, None):
        parameters = {**spec()["parameters"], name: declared}
        changed = {**spec(), "parameters": parameters, "command": ["python", "train.py", *items]}
        with pytest.raises(SpecError, match=rf"parameters\.{name}: null leaves its argument out"):
            check(changed)
