"""The tables of an audit, and of a trial that was trained again, on a terminal."""

import io

from rich.console import Console

from hposvc import spec as specs
from hposvc.analysis.audit import Line
from hposvc.analysis.reproduction import ReproductionResult
from hposvc.views.audit import compared, timeline


def drawn(table):
    console = Console(file=io.StringIO(), width=100, markup=False, highlight=False)
    console.print(table)
    return [line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()]


def saved(what, step):
    return Line(1012.0, step, what, f"checkpoint of step {step}", {"of_step": step})


def test_a_long_reason_goes_on_below_itself():
    rows = drawn(timeline([Line(0.0, 1, "failed", "word " * 60)], "step"))[2:]
    assert len(rows) > 3
    assert all(len(row) <= 100 for row in rows)
    assert {row.index("word") for row in rows} == {rows[0].index("word")}


def test_checkpoints_with_nothing_between_share_a_line():
    lines = [saved("saved", 1), saved("saved", 2), saved("removed", 1), saved("saved", 3)]
    lines += [Line(1013.0, 3, "ended", "COMPLETED"), saved("saved", 9)]
    rows = drawn(timeline(lines, "step"))[2:]
    assert "checkpoints of steps 1 to 3 saved, of step 1 removed" in rows[0]
    assert "checkpoint of step 9" in rows[2]
    assert len(rows) == 3


def test_a_verdict_shows_all_digits_and_the_share_of_the_spread():
    spec = specs.load(
        {
            "engine": {"type": "simulate", "curve": "a_module:curve"},
            "metric": {"name": "loss", "goal": "minimize"},
            "parameters": {"lr": {"min": 0.1, "max": 1.0}},
            "trials": {"max": 1},
        }
    )
    comparison = ReproductionResult(
        *("s", "t0003", "s-repro-t0003", "loss", "different"),
        "it differs by more than 0.001 of itself",
        *(4, 2, 4, 0.5, 0.62500000000001, 0.12500000000001, 0.25, ("a doubt",)),
    )
    text = "\n".join(drawn(compared(comparison, spec)))
    assert "different: it differs by more than 0.001 of itself" in text
    assert "0.5 then, 0.62500000000001 now" in text
    assert "at step 4, the last of 4 that both reported; they differ from step 2 on" in text
    assert "0.125, 25.00% of what lies between the sweep's trials" in text
    assert "a doubt" in text
