"""Metrics in what a program prints, and its checkpoints. If these fail, a step has another's."""

import os
import shutil
import signal
from pathlib import Path

import pytest
from waiting import until

from hposvc.events import error_line
from trainables.worker import LocalLink

LOSS = r"loss=(?P<loss>\S+)"
REPORT = "import hposvc; hposvc.report({'loss': 1})"
REPORT_FOLDER = "import hposvc; hposvc.report({'loss': 1}, checkpoint='.')"


def found(reports, name="loss"):
    return [(report.step, report.metrics[name]) for report in reports]


def test_every_step_gets_the_checkpoint_that_lay_there_when_its_line_came(attempt):
    """The script goes on and overwrites it; a step that writes none has none."""
    script = """
        import os, time
        folder = os.environ["HPOSVC_CHECKPOINT_DIR"]
        for step in range(1, 5):
            if step != 3:
                for part in range(20):
                    open(f"{folder}/part{part}", "w").write(f"{step}")
            print(f"loss={step}")
            time.sleep(0.5)
    """
    outcome, reports = attempt(script, collect=LOSS, until=4)
    assert outcome.kind == "ended"
    kept = [report.checkpoint for report in reports]
    assert [saved and saved.step for saved in kept] == [1, 2, None, 4]
    for saved in filter(None, kept):
        parts = {file.read_text() for file in Path(saved.path).glob("part*")}
        assert parts == {f"{saved.step}"}


def test_a_script_that_is_on_to_the_next_checkpoint_already_has_none_for_this_step(attempt):
    """No checkpoint is better than an incomplete one."""
    script = """
        import os, time
        folder = os.environ["HPOSVC_CHECKPOINT_DIR"]
        open(f"{folder}/state", "w").write("of step 1")
        os.utime(f"{folder}/state", (time.time() + 60,) * 2)  # as if written after the line
        print("loss=1")
    """
    _, reports = attempt(script, collect=LOSS)
    assert reports[0].checkpoint is None


def test_a_checkpoint_is_whole_without_the_links_that_lead_nowhere(attempt, tmp_path):
    """Frameworks leave such links behind, and name their last file by a relative one."""
    (tmp_path / "weights").write_text("far")
    script = f"""
        import os
        os.chdir(os.environ["HPOSVC_CHECKPOINT_DIR"])
        open("epoch-1", "w").write("near")
        os.symlink("epoch-1", "last")
        os.symlink("epoch-0", "best")
        os.symlink({str(tmp_path / "weights")!r}, "weights")
        LINE
    """
    for line, collect in (("print('loss=1')", LOSS), (REPORT, None), (REPORT_FOLDER, None)):
        outcome, reports = attempt(script.replace("LINE", line), collect=collect)
        assert outcome.kind == "ended", outcome.message
        kept = Path(reports[0].checkpoint.path)
        shutil.move(kept, kept.with_name("elsewhere"))
        kept = kept.with_name("elsewhere")
        assert {name: (kept / name).read_text() for name in ("epoch-1", "last", "weights")} == {
            "epoch-1": "near",
            "last": "near",
            "weights": "far",
        }
        assert not (kept / "last").is_symlink()
        assert not (kept / "best").is_symlink()
        shutil.rmtree(kept)


@pytest.mark.parametrize(("line", "collect"), [("print('loss=1')", LOSS), (REPORT, None)])
def test_a_checkpoint_that_can_t_be_copied_is_what_failed(attempt, line, collect):
    """Neither may the step be missing silently, nor may the program's output pipe stall."""
    script = f"""
        import os
        os.mkfifo(os.environ["HPOSVC_CHECKPOINT_DIR"] + "/pipe")
        open(os.environ["HPOSVC_CHECKPOINT_DIR"] + "/state", "w").close()
        {line}
        for n in range(20_000): print("and much more")
    """
    outcome, reports = attempt(script, collect=collect)
    assert outcome.kind == "user"
    assert "the checkpoint of step 1, in HPOSVC_CHECKPOINT_DIR, can't be copied" in outcome.message
    assert "is a named pipe" in outcome.message
    assert "BrokenPipe" not in outcome.message
    assert not reports


def test_a_restored_folder_reaches_a_script_that_knows_nothing_of_us(attempt, tmp_path):
    script = """
        import argparse, os, pathlib
        flags = argparse.ArgumentParser()
        flags.add_argument("--out", required=True)
        flags.add_argument("--resume")
        given = flags.parse_args()
        count = int((pathlib.Path(given.resume) / "count").read_text()) if given.resume else 0
        (pathlib.Path(given.out) / "count").write_text(f"{count + 1}")
        print(f"loss={count + 1}")
    """
    arguments = ("--out=${HPOSVC_CHECKPOINT_DIR}", "--resume=${HPOSVC_RESTORE_DIR}")
    _, first = attempt(script, *arguments, collect=LOSS)
    _, second = attempt(
        script, *arguments, collect=LOSS, first=2, until=2, start=first[0].checkpoint
    )
    assert found([*first, *second]) == [(1, 1.0), (2, 2.0)]


def test_a_pattern_that_matches_nothing_is_said(attempt):
    outcome, _ = attempt("print('Loss: 1')", collect=LOSS)
    assert outcome.kind == "user"
    said = error_line(outcome.message)
    assert (
        "collect.stdout matched nothing; the last line was 'Loss: 1': correct the pattern" in said
    )
    assert outcome.message.startswith("Loss: 1\n")
    assert outcome.sweep_wide  # other values would not change what the program prints


def test_a_metric_that_goes_to_stderr_is_said(attempt):
    outcome, _ = attempt("import sys\nprint('loss=1', file=sys.stderr)", collect=LOSS)
    assert outcome.kind == "user"
    assert "it matches stderr; send that to stdout" in error_line(outcome.message)


def test_a_pattern_over_several_lines_and_metrics_of_other_names_are_said(attempt):
    over_lines = r"epoch (?P<step>\d+)\s+loss=(?P<loss>\S+)"
    outcome, _ = attempt("print('epoch 1\\nloss=1')", collect=over_lines)
    assert "matches over several lines, and is tried on each line" in error_line(outcome.message)
    outcome, _ = attempt("print('val_loss=1')", collect=r"(?P<name>\w+)=(?P<value>\S+)")
    told = "collect.stdout found no loss, which the sweep needs; it found val_loss"
    assert told in error_line(outcome.message)


@pytest.mark.parametrize("line", ["'#' * 70000, 'loss=1'", "'\\x1b[31mloss\\x1b[0m=\\x1b[1m1'"])
def test_colours_and_long_lines_hide_no_metric(attempt, line):
    outcome, reports = attempt(f"print({line})", collect=LOSS)
    assert (outcome.kind, found(reports)) == ("ended", [(1, 1.0)])


def test_other_metrics_on_stdout_are_not_taken_for_the_missing_one_on_stderr(attempt):
    either = r"loss=(?P<loss>\S+)|acc=(?P<acc>\S+)"
    outcome, _ = attempt("print('acc=1')", collect=either)
    assert "it matches stderr" not in error_line(outcome.message)


def test_a_script_goes_on_while_a_decision_is_awaited(attempt, tmp_path):
    """Only a report can hold the program: a pattern can't."""
    mark = tmp_path / "went-on"

    class Patient(LocalLink):
        def exchange(self, report):
            until(mark.exists)
            return super().exchange(report)

    script = f"print('loss=1', flush=True); open({str(mark)!r}, 'w')"
    outcome, _ = attempt(script, collect=LOSS, link=Patient(), milestones=(1,))
    assert outcome.kind == "ended"


def test_a_program_that_somebody_else_stops_is_not_the_user_s_fault(attempt, tmp_path):
    """Whoever kills a program by hand gets a retry, not a failed trial."""
    file = tmp_path / "pid"
    script = f"import os, time; open({str(file)!r}, 'w').write(f'{{os.getpid()}}'); print('loss=1')"

    class Killer(LocalLink):
        def exchange(self, report):
            os.kill(int(file.read_text()), signal.SIGTERM)
            return super().exchange(report)

    waits = f"{script}; time.sleep(600)"
    outcome, _ = attempt(waits, collect=LOSS, until=2, link=Killer())
    assert outcome.kind == "collateral"
