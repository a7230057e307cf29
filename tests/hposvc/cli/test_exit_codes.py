from pathlib import Path

import click
from simulated_sweeps import at_desk

from hposvc.analysis.reproduction import ReproductionResult, Trained
from hposvc.cli.exit_codes import exit_code
from hposvc.journal.home import Home
from hposvc.journal.journal import SweepRow
from hposvc.open_sweep import Record
from hposvc.verbs.foreground import conclude_trained
from hposvc.verbs.options import Shared


def test_an_error_without_an_exit_code_is_a_bug():
    assert exit_code(KeyError("x")) == 1
    assert exit_code(KeyboardInterrupt()) == 130
    assert exit_code(click.exceptions.Abort()) == 130
    assert exit_code(click.BadParameter("x")) == 2


def test_an_interrupted_space_is_named_with_its_line(tmp_path, hposvc):
    file = tmp_path / "spaces.py"
    file.write_text("def endless(trial):\n    raise KeyboardInterrupt\n")
    (tmp_path / "sweep.yaml").write_text(f"parameters: {{space: '{file}:endless'}}\n")
    ended = hposvc("validate", tmp_path / "sweep.yaml")
    assert (ended.code, ended.err.strip()) == (130, f"interrupted in endless, {file}:2")


def test_a_resumed_reproduction_that_trackers_lack_exits_as_any_sweep_does():
    desk = at_desk()
    desk.report(desk.start(), 1, 0.5)
    row = SweepRow("two", "two", "demo", 0.0, {}, {})
    what = ("one", "t0001", "two", "loss", "equal", "no step differs")
    compared = ReproductionResult(*what, *(1, None, 1, 0.5, 0.5, 0.0, None, ()))

    def code(behind, had_ended):
        record = Record(row, desk.state, {}, "none", behind)
        trained = Trained(record, compared, had_ended)
        return conclude_trained(Shared("json"), trained, Home(Path("home"), "", ""))

    assert [code(0, True), code(3, False), code(3, True)] == [0, 0, 5]
