"""docs/how-to/training.md, training-reference.md and strategies.md against the code.

If they fail, people set options that do something else.
"""

import math
import re
import subprocess
import sys
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Literal, get_args, get_origin

import pages
import pytest
import reference_page
from ruamel.yaml import YAML
from tasks import Deep
from tolerances import CLOSE

from hposvc import spec as specs
from trainables import Training, Worker
from trainables.length import COUNTED, parts_of_epoch
from trainables.monitoring.memory import Memory
from trainables.monitoring.nvml import REASONS
from trainables.monitoring.stragglers import slowest
from trainables.optim.schedules import RISE, factor
from trainables.training import Schedule

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGE = pages.read("reference/training-reference.md")
SPECIAL = pages.read("advanced/strategies.md")
BLOCKS = {
    language: [
        block
        for page in ("how-to/training.md", "reference/training-reference.md")
        for block in pages.blocks(page, language)
    ]
    for language in ("python", "yaml")
}
FIRST = pages.read("how-to/training.md")

sys.path.insert(0, str(DOCS))
from techniques import PAGES, section, written  # noqa: E402 - it lies beside the pages

rows_of = partial(reference_page.rows, text=PAGE)
ROWS = [
    row for text in (PAGE, SPECIAL) for row in reference_page.rows("option (default)", text=text)
]
OPTIONS = {reference_page.codes(cells[0])[0]: cells for cells in ROWS}
NAMED = [name for cells in rows_of("metric") for name in re.findall(r"`([^`]+)`", cells[0])]


@pytest.fixture
def task_of_the_page(tmp_path, monkeypatch):
    """Write the page's task as a user would: to a file beside the spec."""
    (tmp_path / "digits_task.py").write_text(BLOCKS["python"][0])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("digits_task", None)


def test_the_blocks_run_one_after_the_other(task_of_the_page, capsys):
    variables = {}
    for block in BLOCKS["python"][1:]:
        exec(compile(block, "docs/how-to/training.md", "exec"), variables)
    printed = capsys.readouterr().out
    assert printed.startswith("1 ")


@pytest.mark.full
def test_its_sweep_is_valid(task_of_the_page):
    (task_of_the_page / "sweep.yaml").write_text(BLOCKS["yaml"][0])
    command = [sys.executable, "-m", "hposvc", "validate", "sweep.yaml"]
    environment = {"PYTHONPATH": str(ROOT), "HPOSVC_HOME": str(task_of_the_page / "home")}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("block", BLOCKS["yaml"][1:])
def test_what_it_says_beside_training_is_valid(block):
    base = YAML(typ="safe").load(BLOCKS["yaml"][0])
    specs.load({**base, **YAML(typ="safe").load(block)})


def test_every_option_is_there_once_with_its_default_and_its_words():
    assert OPTIONS.keys() == {field.name for field in fields(Training)}
    assert len(ROWS) == len(OPTIONS)
    for field in fields(Training):
        name, text = OPTIONS[field.name]
        value = YAML(typ="safe").load(name.rpartition(" (`")[2].removesuffix("`)"))
        assert (tuple(value) if value == [] else value) == field.default, field.name
        words = get_args(field.type) if get_origin(field.type) is Literal else ()
        missing = [word for word in words if f"`{word}`" not in text]
        assert not missing, field.name


def test_it_says_how_close_strategies_are():
    rows = {name: bound for name, bound, *_ in rows_of("precision", "largest difference")}
    assert rows.keys() == {f"`{name}`" for name in CLOSE}
    for name, bound in CLOSE.items():
        text = rows[f"`{name}`"]
        assert float(text.split(",")[0]) == bound, name


@pytest.mark.parametrize("warmup", [0.0, 0.1, 0.9])
def test_its_formulae_are_the_schedules(warmup):
    (rise, cycle) = re.findall(r"`(1(?:/25| - 24/25)[^`]*)`", PAGE)
    rows = [*rows_of("schedule")]
    falls = {reference_page.codes(name)[0]: formula.strip("`") for name, formula, _ in rows}
    assert set(falls) == set(get_args(Schedule)) - {"task", "plateau"}
    for name, fall in falls.items():
        w = RISE if name == "one_cycle" and not warmup else warmup
        for p in (0.0, 0.05, 0.2, 0.5, 0.85, 0.95):
            formula = fall if p >= w else cycle if name == "one_cycle" else rise
            variables = {
                "p": p,
                "w": w,
                "d": (p - w) / (1 - w),
                **vars(math),
                "max": max,
                "min": min,
            }
            assert eval(formula, variables) == pytest.approx(factor(name, p, warmup)), name


def test_every_metric_of_a_report_is_there():
    every = Training(precision="16-mixed", clip=1.0, log_layers_every=1, ema=0.9, accumulate=2)
    worker = replace(Worker.alone(until=2, training=every), nan="skip")
    Deep().train(worker)
    reported = {*worker.reports[-1].metrics, *Memory(1, 1, 1).metrics, *slowest([1.0, 2.0])}
    generic = {re.sub(r"^(grad_norm|update_ratio)/.*", r"\1/LAYER", name) for name in reported}
    assert generic - {"val/loss"} <= set(NAMED)
    of_gpus = {name for name in NAMED if name.startswith("gpu/") or name == "perf/mfu"}
    assert set(NAMED) - of_gpus - generic == {"val/NAME", "train/loss/TURN"}
    assert all(f"`{word}`" in PAGE for word in REASONS.values())


@pytest.mark.parametrize("page", PAGES)
def test_the_table_of_what_excludes_what_is_the_codes(page):
    assert written(page) == pages.read(page), "PYTHONPATH=. python docs/techniques.py --write"
    assert len(section(PAGES[page]).splitlines()) > 4


LENGTHS = [cells[0].strip("`") for cells in reference_page.rows("`fidelity`", text=FIRST)]


@pytest.mark.parametrize("fidelity", LENGTHS)
def test_every_length_of_the_first_page_is_one_that_a_task_knows(fidelity):
    base = YAML(typ="safe").load(BLOCKS["yaml"][0])
    length = YAML(typ="safe").load(fidelity)
    spec = specs.load({**base, "trainable": "trainables.zoo.digits:DigitsCNN", "fidelity": length})
    parts_of_epoch(spec.fidelity.unit)
    assert spec.fidelity.interval in (1, 100, 50_000, 5_000_000)


def test_the_first_page_names_every_unit():
    assert {re.search(r"unit: ([a-z]+)", text)[1] for text in LENGTHS} == {"epoch", *COUNTED}
