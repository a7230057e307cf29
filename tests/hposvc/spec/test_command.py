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


WITHOUT = [
    *(["--lr=${lr}", "t.py"],),
    *(["${args}"], ["--lr=${lr}"], ["${args_no_hyphens}", "t.py"], ["${HPOSVC_TRIAL}", "${args}"]),
    *(["python", "${args}"], ["python3.12", "-u", "-m", "${args}"], ["/bin/sh", "${args_json}"]),
]


@pytest.mark.parametrize("command", WITHOUT)
def test_arguments_without_a_program_are_refused(spec, command):
    with pytest.raises(SpecError, match=r"command\[[013]\]: is .*no program; write it first"):
        load({**spec(), "command": command})


def test_a_program_behind_an_interpreter_is_taken(spec):
    for words in (
        ["python", "-c", "..."],
        ["sh", "-c", "train ${args}"],
        ["./train"],
        ["bash", "x"],
    ):
        load({**spec(), "command": [*words, "${args}"]})


def test_a_range_of_many_values_takes_no_time(spec):
    parameters = {**spec()["parameters"], "seed": {"min": 0, "max": 10**12}}
    check({**spec(), "command": ["sh", "-c", "...", "${args}"], "parameters": parameters})


@pytest.mark.parametrize(
    ("item", "values", "said"),
    [
        ("${args}", [1, "1"], "1 and '1'"),
        ("${args}", ["True", True], "'True' and true"),
        ("--y=${x}", [[1, 2], 1.5, "1.5"], "1.5 and '1.5'"),
        ("--y=${x}-${lr}", [1, "1"], "1 and '1'"),
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


ITEMS = [
    ["${args}"],
    ["${args_hyphens}"],
    ["--lr=${lr}", "--wd=${x}"],
    ["x.py ${args}"],
    ["--wd=${x}-${lr}"],
]


@pytest.mark.parametrize("items", ITEMS)
def test_null_is_refused_where_the_program_would_train_a_default_of_its_own(spec, items):
    name = "x"
    for declared in ({"values": [None, 0.1]}, None):
        parameters = {**spec()["parameters"], name: declared}
        changed = {**spec(), "parameters": parameters, "command": ["python", "train.py", *items]}
        with pytest.raises(SpecError, match=rf"parameters\.{name}: null leaves its argument out"):
            check(changed)
