"""The spec: what loads, what is refused and how it reads, and the way out and back in.

tests/specs/bad/expected.txt holds what each bad spec prints. After a change that is meant:
GOLDEN=write python -m pytest tests/hposvc/test_spec.py, and read the difference.
"""

import dataclasses
import json
import os
import pickle
import sys
from pathlib import Path

import pytest

from hposvc.plugins import SCHEDULERS, build
from hposvc.schedulers.asha import Asha
from hposvc.schedulers.plateau import Plateau
from hposvc.spec import SpecError, SweepSpec, Training, check, dump, load, restore
from hposvc.spec.ending import Finalists, MaxFailed, NoGain, Stop

SPECS = Path(__file__).parents[2] / "specs"
GOOD = sorted(SPECS.glob("*.yaml"))
BAD = SPECS / "bad"
PAGE = Path(__file__).parents[3] / "docs" / "CONTRACT.md"

SMALL = {
    "trainable": "my_code:Net",
    "metric": {"name": "loss", "goal": "minimize"},
    "parameters": {"lr": {"min": 1e-5, "max": 0.1, "log": True}},
    "trials": {"max": 8},
}


def small(**changes):
    return {**SMALL, **changes}


def refusal(source, **sets):
    with pytest.raises(SpecError) as caught:
        load(source, {key.replace("__", "."): value for key, value in sets.items()})
    return str(caught.value)


def printed():
    """What each bad spec prints, a line a problem."""
    for path in sorted(BAD.glob("*.yaml")):
        yield refusal(path).replace(f"{BAD}{os.sep}", "") + "\n"


def test_bad_specs_print_what_was_agreed():
    golden = BAD / "expected.txt"
    if os.environ.get("GOLDEN") == "write":
        golden.write_text("".join(printed()), encoding="utf-8")
    assert "".join(printed()) == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_good_spec_loads_and_comes_back_from_its_dump(path):
    spec = load(path)
    assert load(json.loads(json.dumps(dump(spec)))) == spec


def test_the_example_of_the_contract_is_among_the_good_specs():
    text = PAGE.read_text(encoding="utf-8")
    example = text.split("```yaml\n")[1].split("```")[0]
    assert (SPECS / "contract.yaml").read_text(encoding="utf-8") == example


def test_a_small_spec_has_the_defaults_of_the_contract():
    spec = load(SMALL)
    assert (spec.search.name, spec.scheduler.name, spec.engine.type) == ("auto", "fifo", "ray")
    assert (spec.trials.max, spec.trials.parallel, spec.budget.wall_s) == (8, "auto", None)
    assert (spec.first_step, spec.last_step) == (1, 1)
    assert spec.training == Training(strategy="single", precision="32-true")
    resources = spec.resources
    assert (resources.workers, resources.cpus_per_worker, resources.gpus_per_worker) == (1, 1, 0)
    assert dataclasses.asdict(spec.failure) == {
        "infra_retries": 3,
        "preempt_retries": "unlimited",
        "user_retries": 0,
        "grace": 60.0,
        "stall": 600.0,
        "timeout": None,
        "straggler": "report",
        "oom": "shrink",
        "nan": "stop",
    }
    assert dataclasses.astuple(spec.checkpoints) == (1, 1, 1, None)
    assert spec.seed == 0


def test_a_spec_with_every_key_means_what_it_says():
    spec = load(SPECS / "everything.yaml")
    assert spec.space["dropout"].step == 0.1
    assert spec.resources.memory_per_worker == 4 * 2**30
    assert spec.budget.wall_s == 5400
    assert (spec.budget.gpu_hours, spec.budget.cpu_hours, spec.budget.reserve) == (40, 400, 0.1)
    assert spec.stop == Stop(NoGain(30, 0.001), MaxFailed(0.5, 8))
    assert spec.finalists == Finalists(top=2, seeds=4)
    assert (spec.failure.grace, spec.failure.straggler) == (30, "drain")
    assert spec.failure.timeout == 7200
    assert build(SCHEDULERS, spec.scheduler) == Asha(4, "promote")
    assert spec.plateau == Plateau(4, 0.001)
    assert spec.search.name == "random"
    assert (spec.first_step, spec.last_step) == (3, 27)
    defaults = {field.name: field.default for field in dataclasses.fields(SweepSpec)}
    script = load(SPECS / "command.yaml")
    both = [(name, getattr(spec, name), getattr(script, name)) for name in defaults]
    assert not [name for name, one, other in both if one == other == defaults[name] != 1]


def test_an_empty_key_is_as_good_as_none():
    assert load(small(tags=None, constraints=None, budget=None)) == load(SMALL)


def test_the_strategy_follows_the_workers():
    spec = load(small(resources={"workers": 2}))
    assert spec.training.strategy == "ddp"
    assert load(dump(spec), {"resources.workers": 1}).training.strategy == "single"
    assert load(small(training={"strategy": "ddp"})).training.strategy == "ddp"


def test_set_changes_values_before_they_are_checked():
    spec = load(SPECS / "contract.yaml", {"trials.max": 3, "scheduler.mode": "promote"})
    assert spec.trials.max == 3
    assert spec.scheduler.options == {"eta": 3, "mode": "promote"}


def test_set_reaches_into_a_plug_in_that_was_given_as_a_word():
    spec = load(small(scheduler="asha", fidelity={"max": 9}), {"scheduler.eta": 4})
    assert spec.scheduler.options == {"eta": 4}


def test_set_replaces_a_range_by_a_constant():
    assert load(SMALL, {"parameters.lr": 0.01}).space.searched == ()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("trials__maxx", 3, "--set trials.maxx: no such key; did you mean 'max'?"),
        ("trials__max", "many", "--set trials.max: is 'many'; give a whole number"),
        ("resources", {"workers": {"min": 1}}, "--set resources.workers.max: is missing"),
        ("resources", {"workers": {"min": 2, "max": 6}}, "--set resources.workers.max: is 6"),
        ("resources__workers", 0, "--set resources.workers: is 0; give 1 or more"),
        ("metrc__goal", "minimize", "--set metrc: no such key; did you mean 'metric'?"),
        ("parameters__lr__max", 1e-9, "--set parameters.lr: min is 1e-05, max is 1e-09; swap"),
        ("seed", print, "--set seed: is a Python object"),
    ],
)
def test_a_mistake_in_set_is_placed_there(key, value, message):
    assert refusal(SMALL, **{key: value}).startswith(message)


@pytest.mark.parametrize("pattern", [r"step=(?P<step>\d+)", r"(?P<step>\d+) (?P<acc>\S+)"])
def test_a_pattern_that_never_finds_the_metric_is_refused(pattern):
    """The sweep would fail only when its first trial has ended."""
    message = refusal(small(trainable=None, command=["a", "${args}"], collect={"stdout": pattern}))
    assert "collect.stdout: finds no 'loss', the sweep's metric" in message


def test_a_pattern_of_names_and_values_finds_any_metric():
    collect = {"stdout": r"(?P<name>\w+)=(?P<value>\S+)"}
    found = load(small(trainable=None, command=["a", "${args}"], collect=collect))
    assert found.collect.names is None


def test_a_dict_has_no_lines():
    assert refusal(small(trials={"max": 0})) == "spec: trials.max: is 0; give 1 or more"


def test_problems_come_in_the_order_of_the_file(tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text(
        "seed: -1\nnaem: x\ntrials: {max: 0}\nparameters:\n  lr: {min: 1, max: 0}\n"
        "  batch: []\nmetric: {name: loss, goal: low}\n"
    )
    lines = refusal(path).splitlines()
    assert [line.removeprefix(f"{path}:").split(": ")[0] for line in lines] == [
        "1:7",
        "2:1",
        "3:15",
        "5:7",
        "6:10",
        "7:28",
    ]


def test_no_more_than_twenty_problems_are_told():
    lines = refusal(small(**{f"key{number}": 1 for number in range(30)})).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "... and 10 more"


def test_true_is_no_number():
    assert refusal(small(seed=True)) == "spec: seed: is true; give a whole number"


def test_foreign_ranges_are_frozen_as_plain_data():
    tune = pytest.importorskip("ray.tune")
    spec = load(small(parameters={"lr": tune.loguniform(1e-5, 0.1)}))
    assert spec.parameters == {"lr": {"min": 1e-5, "max": 0.1, "type": "float", "log": True}}
    spec = load(SMALL, {"parameters.layers": tune.randint(1, 4)})
    assert restore(dump(spec)).parameters["layers"] == {"min": 1, "max": 3, "type": "int"}
    assert refusal(SMALL, parameters__lr=tune.randn()).startswith("--set parameters.lr: is normal")


def test_a_spec_in_python_is_held_to_the_same_rules():
    with pytest.raises(SpecError, match=r"trials\.max: is missing"):
        dataclasses.replace(load(SMALL), trials=type(load(SMALL).trials)())


def test_a_spec_survives_a_copy_by_pickle():
    spec = load(SPECS / "everything.yaml")
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_a_frozen_spec_is_restored_without_its_code(tmp_path, monkeypatch):
    (tmp_path / "frozen_search.py").write_text(
        "from dataclasses import dataclass\n"
        "@dataclass(frozen=True)\nclass Mine:\n    share: float = 0.5\n"
        "    def suggest(self, space, history, n, rng): ...\n"
    )
    with monkeypatch.context() as there:
        there.syspath_prepend(tmp_path)
        frozen = load(small(search={"method": "frozen_search:Mine", "share": 0.2}))
    del sys.modules["frozen_search"]
    assert restore(dump(frozen)) == frozen
    assert "there is no module frozen_search" in refusal(dump(frozen))


def test_a_wrong_plug_in_and_a_wrong_value_are_told_together():
    assert refusal(small(seed=-1, search={"method": "gpp"}, scheduler={"eta": 3})).splitlines() == [
        "spec: search.method: gpp: no such search method; did you mean 'gp'?",
        f"spec: scheduler.type: is missing; choose {', '.join(SCHEDULERS.classes)} or module:Class",
        "spec: seed: is -1; give 0 or more",
    ]


def test_check_imports_the_trainable_and_the_curve(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "checked_code.py").write_text(
        "from dataclasses import dataclass\n"
        "@dataclass(frozen=True)\nclass Net:\n    lr: float = 0.1\n"
        "    def train(self, worker): ...\n"
        "def curve(params, step): return {'loss': 1.0}, 1.0\n"
    )
    assert check(SMALL, {"trainable": "checked_code:Net"}).trainable == "checked_code:Net"
    path = tmp_path / "sweep.yaml"
    misnamed = small(trainable="checked_code:Net", parameters={"rl": 0.1})
    path.write_text(json.dumps(misnamed, indent=1))
    with pytest.raises(SpecError, match=r"sweep\.yaml:8:3: parameters\.rl: Net has no such field"):
        check(path)
    simulated = small(trainable=None, engine={"type": "simulate", "curve": "checked_code:curve"})
    assert check(simulated).engine.curve == "checked_code:curve"
    with pytest.raises(SpecError, match=r"engine\.curve: checked_code has no such name"):
        check(simulated, {"engine.curve": "checked_code:curv"})
    with pytest.raises(SpecError, match=r"engine\.curve: checked_code:__name__ is no function"):
        check(simulated, {"engine.curve": "checked_code:__name__"})
