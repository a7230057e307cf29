"""Loading, refusing, dumping and restoring specs.

tests/specs/bad/expected.txt holds the error messages of each bad spec. After an intended change:
GOLDEN=write python -m pytest tests/hposvc/spec/test_spec.py, and read the difference.
"""

import dataclasses
import difflib
import json
import os
import re
import sys
from pathlib import Path

import pytest

from hposvc.errors import SpecError
from hposvc.schedulers.asha import Asha
from hposvc.schedulers.early_stopping import Plateau
from hposvc.spec import SweepSpec, dump, given, load, restore
from hposvc.spec.command import Collect
from hposvc.spec.environment import Environment
from hposvc.spec.metrics import Metric
from hposvc.spec.registry import SCHEDULERS, build
from hposvc.spec.sections import Resources, Trials
from hposvc.spec.stopping import Finalists, MaxFailed, PlateauRule, Stop, Worth
from trainables.training import Training

SPECS = Path(__file__).parents[2] / "specs"
GOOD = sorted(SPECS.glob("*.yaml"))
BAD = SPECS / "bad"
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "spec.md"

SMALL = {
    "trainable": "my_code:Net",
    "metric": {"name": "loss", "goal": "minimize"},
    "parameters": {"lr": {"min": 1e-5, "max": 0.1, "log": True}},
    "trials": {"max": 8},
}


def listed(section):
    """Return the keys of a section as messages list them, in their order and in the alphabet's."""
    names = [field.name for field in dataclasses.fields(section)]
    more = ", ..." if len(names) > 12 else ""
    return [", ".join(names), ", ".join(sorted(names)[:12]) + more]


SECTIONS = (SweepSpec, Metric, Trials, Resources, Environment, Collect)
LISTED = [(keys, section.__name__) for section in SECTIONS for keys in listed(section)]


def small(**changes):
    return {**SMALL, **changes}


def refusal(source, **sets):
    with pytest.raises(SpecError) as caught:
        load(source, {key.replace("__", "."): value for key, value in sets.items()})
    return str(caught.value)


def printed():
    """Yield the error messages of each bad spec, one line for each problem."""
    for path in sorted(BAD.glob("*.yaml")):
        text = refusal(path).replace(f"{BAD}{os.sep}", "")
        for keys, section in LISTED:
            text = re.sub(
                rf"(known: |mapping of ){re.escape(keys)}(?=[,\n]|$)",
                rf"\1<keys of {section}>",
                text,
            )
        yield (
            re.sub(rf"\(looked in {re.escape(str(BAD))}, .*?installed packages\)", "(...)", text)
            + "\n"
        )


def test_bad_specs_print_the_expected_messages():
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
    assert (spec.trials.max, spec.trials.parallel, spec.budget.wall) == (8, "auto", None)
    assert (spec.first_step, spec.last_step) == (1, None)
    assert spec.training == Training(strategy="single", precision="32-true")
    resources = spec.resources
    assert (resources.workers, resources.cpus_per_worker, resources.gpus_per_worker) == (1, 1, 0)
    assert spec.seed == 0


def test_every_key_of_a_spec_has_its_effect():
    spec = load(SPECS / "everything.yaml")
    assert spec.space["dropout"].step == 0.1
    assert spec.resources.memory_per_worker == 4 * 2**30
    assert spec.budget.wall == 5400
    assert (spec.budget.gpu_hours, spec.budget.cpu_hours, spec.budget.reserve) == (40, 400, 0.1)
    worth = Worth(0.01, cpu_hours=4)
    assert spec.stop == Stop(PlateauRule(30, 0.001), worth, MaxFailed(0.5, 8), ("math:prod",))
    assert spec.finalists == Finalists(top=2, seeds=4)
    assert (spec.failure.grace, spec.failure.straggler) == (30, "drain")
    assert spec.failure.timeout == 7200
    assert build(SCHEDULERS, spec.scheduler) == Asha(4, "promote")
    assert spec.plateau == Plateau(4, 0.001)
    assert spec.search.name == "random"
    assert (spec.first_step, spec.last_step) == (3, 27)
    defaults = {field.name: field.default for field in dataclasses.fields(SweepSpec)}
    others = [load(SPECS / name) for name in ("command.yaml", "serve.yaml", "sizes.yaml")]
    assert not [
        name
        for name, default in defaults.items()
        if default != 1 and all(getattr(each, name) == default for each in (spec, *others))
    ]


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


def test_at_most_twenty_problems_are_printed():
    lines = refusal(small(**{f"key{number}": 1 for number in range(30)})).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "... and 10 more"


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


MANY = 500
KEYS = {f"k{number}": 1 for number in range(MANY)}


@pytest.mark.parametrize(
    ("sections", "problems", "most"),
    [
        (KEYS, MANY, 20),
        ({"training": KEYS}, MANY, 20),
        # These options are read several times, and are compared with the keys beside them too.
        ({"search": {"method": "gp", **KEYS}}, MANY, 100),
        ({"scheduler": {"type": "asha", **KEYS}, "fidelity": {"max": 9}}, MANY, 100),
        ({"parameters": dict.fromkeys([*KEYS, *(f"more{key}" for key in KEYS), "a"])}, 1, 0),
        (
            {
                "trainable": None,
                "command": ["python", "-c", "0", "${args}"],
                "collect": {"stdout": "(?P<loss>[0-9]+)"},
                "limits": [f"{key} <= 1" for key in KEYS],
            },
            MANY,
            20,
        ),
        (
            {"metric": None, "metrics": [{"name": "a", "goal": "minimize", "select": "best"}] * 9},
            1,
            0,
        ),
    ],
    ids=["keys", "options", "search", "scheduler", "parameters", "limits", "metrics"],
)
def test_only_for_mistakes_that_are_shown_the_nearest_name_is_looked_up(
    monkeypatch, sections, problems, most
):
    looked = []
    closest = difflib.get_close_matches

    def look(word, names, *args, **options):
        looked.append(word)
        return closest(word, names, *args, **options)

    monkeypatch.setattr(difflib, "get_close_matches", look)
    with pytest.raises(SpecError) as caught:
        load(small(**sections))
    assert len(caught.value.problems) == problems
    assert len(str(caught.value).splitlines()) == min(problems, 21)
    assert len(looked) <= most


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_what_is_given_is_the_spec_without_its_defaults(path):
    spec = load(path)
    assert load(given(spec)) == spec
    assert given(load(SMALL)).keys() == SMALL.keys() | {"folder"}
