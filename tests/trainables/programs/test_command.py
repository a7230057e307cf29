"""Programs in place of a trainable. If these fail, people's scripts train the wrong thing.

Real processes in a world of one; what several ranks do together is in test_ranks.py, what a
program prints in ../contracts/test_command_output.py, what it leaves behind in test_running.py.
"""

import os
import time

import pytest

from hposvc.events import error_line
from trainables.order import Order
from trainables.programs.command import Command
from trainables.runtime.assignment import Assignment, SlotConfig, carry_out
from trainables.training import Training
from trainables.worker import LocalLink


def found(reports, name="loss"):
    return [(report.step, report.metrics[name]) for report in reports]


STEPS = """
    import os, hposvc
    before = hposvc.get_checkpoint()
    count = int((before / "count").read_text()) if before else 0
    assert str(before) == os.environ.get("HPOSVC_RESTORE_DIR", "None")
    for step in range(int(os.environ["HPOSVC_FIRST"]), int(os.environ["HPOSVC_UNTIL"]) + 1):
        count += 1
        os.makedirs("ckpt", exist_ok=True)
        open("ckpt/count", "w").write(str(count))
        hposvc.report({"loss": 1 / count, "count": count}, step, checkpoint="ckpt")
"""


def test_a_script_reports_each_step_and_goes_on_from_its_checkpoint(attempt, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome, first = attempt(STEPS, until=2, total=4, milestones=(2,))
    assert (outcome.kind, outcome.leaks) == ("ended", ())
    outcome, second = attempt(STEPS, first=3, until=4, total=4, start=first[-1].checkpoint)
    assert outcome.kind == "ended"
    assert found([*first, *second], "count") == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]


def test_a_stop_ends_the_report_and_nothing_after_it_runs(attempt, tmp_path):
    script = f"""
        import hposvc
        try:
            for step in range(1, 10):
                hposvc.report({{"loss": 1.0}}, step)
        except Exception:
            open({str(tmp_path / "swallowed")!r}, "w")
        finally:
            open({str(tmp_path / "tidied")!r}, "w")
    """
    outcome, reports = attempt(script, until=9, link=LocalLink(stop_at=3))
    assert outcome.kind == "ended"
    assert [report.step for report in reports] == [1, 2, 3]
    assert (tmp_path / "tidied").exists()
    assert not (tmp_path / "swallowed").exists()


def test_a_milestone_holds_the_script_in_its_report_until_the_decision(attempt, tmp_path):
    """If the script trained on during the decision, the work would be wasted."""
    mark = tmp_path / "went-on"

    class Slow(LocalLink):
        def exchange(self, report):
            time.sleep(0.3)
            self.early = mark.exists()
            return super().exchange(report)

    script = f"import hposvc; hposvc.report({{'loss': 1}}); open({str(mark)!r}, 'w')"
    link = Slow()
    attempt(script, until=2, milestones=(1,), link=link)
    assert not link.early
    assert mark.exists()


TORCHRUNS = """
    import os, hposvc
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    hposvc.report({"loss": sum(name in os.environ for name in names)})
"""


def test_a_lone_process_is_not_told_that_it_is_distributed_unless_it_asks(attempt, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "8")  # of whatever started hposvc
    _, reports = attempt(TORCHRUNS)
    assert found(reports, "loss") == [(1, 0.0)]
    _, reports = attempt(TORCHRUNS, "${args}", "--world=${WORLD_SIZE}")
    assert found(reports, "loss") == [(1, 5.0)]
    assert os.environ["WORLD_SIZE"] == "8"


# A program's end


def test_a_failure_carries_the_last_lines_of_the_output(attempt):
    script = "import sys; print('epoch 1'); sys.exit('no data in /data')"
    outcome, _ = attempt(script)
    assert outcome.kind == "user"
    assert "exit status 1" in outcome.message
    assert "epoch 1" in outcome.message
    assert "no data in /data" in outcome.message


@pytest.mark.parametrize(
    ("name", "kind"), [("SIGKILL", "collateral"), ("SIGTERM", "collateral"), ("SIGSEGV", "user")]
)
def test_an_end_from_outside_is_not_the_user_s_fault(attempt, name, kind):
    outcome, _ = attempt(f"import os, signal; os.kill(os.getpid(), signal.{name})")
    assert outcome.kind == kind
    assert f"killed by {name}" in outcome.message


def test_an_abort_after_the_last_step_loses_nothing(attempt):
    """gloo can abort a Python that leaves; before the last step an abort is one."""
    script = "import os, hposvc; hposvc.report({'loss': 1}); os.abort()"
    assert attempt(script, until=1)[0].kind == "ended"
    outcome, _ = attempt(script, until=2)
    assert outcome.kind == "user"
    assert "killed by SIGABRT" in outcome.message


def test_a_script_that_never_reports_is_told_how(attempt):
    outcome, _ = attempt("print('done')")
    assert outcome.kind == "user"
    assert outcome.message.startswith("done\n")
    told = "the command ended without metrics: no report came; call hposvc.report"
    assert error_line(outcome.message).startswith(told)  # what lists of trials show


def test_a_script_that_never_reports_is_told_the_line_of_the_library_that_it_imports(tmp_path):
    (tmp_path / "train.py").write_text("def train():\n    from lightgbm import train\n")
    command = Command(("python", f"{tmp_path}/train.py"), "rank", None, 1.0)
    config = SlotConfig("", Training(), ("loss",), 1, 1, 0, tmp_path, command=command)
    outcome = carry_out(config, Assignment(Order(1, "t0001", {}, None, 1, 1, ())), 0, LocalLink())
    told = "if it trains with lightgbm, add callbacks=[hposvc.lightgbm.Report()] to train"
    assert told in error_line(outcome.message)


def test_a_program_that_is_not_there_is_named(tmp_path):
    command = Command(("no-such-program", "${args}"), "rank", None, 1.0)
    config = SlotConfig("", Training(), ("loss",), 1, 1, 0, tmp_path, command=command)
    task = Assignment(Order(1, "t0001", {"lr": 0.1}, None, 1, 1, ()))
    outcome = carry_out(config, task, 0, LocalLink())
    assert outcome.kind == "user"
    assert "no-such-program can't be started" in outcome.message


# A program that starts the ranks of its node itself

RANKS = """
    import os, sys
    from subprocess import PIPE, Popen
    def rank(number, code):
        program = [sys.executable, "-c", "import hposvc, sys; " + code]
        return Popen(program, env={**os.environ, "RANK": number}, stdin=PIPE, stdout=PIPE)
    report = "hposvc.report({'loss': 1}); "
    when_told = "sys.stdin.read(); "
"""


def test_a_rank_that_reports_more_often_than_rank_0_is_told(attempt):
    """Rank 0's process has gone; the node's program would wait for the other one for ever."""
    script = f"""{RANKS}
    zero, one = rank("0", report), rank("1", when_told + report * 2)
    zero.communicate()
    one.communicate()
    sys.exit(one.returncode)
    """
    outcome, reports = attempt(script, until=3, launch="node")
    assert found(reports) == [(1, 1.0)]
    assert outcome.kind == "user"
    assert "rank 1 reports once more, but rank 0 has ended without it" in outcome.message


def test_a_program_may_start_its_ranks_anew_for_each_epoch(attempt):
    """Rank 0 of the first epoch has gone when rank 1 of the second reports."""
    script = f"""{RANKS}
    for epoch in range(3):
        zero, one = rank("0", when_told + report), rank("1", "print(flush=True); " + report)
        one.stdout.readline()
        zero.communicate()
        one.communicate()
        assert zero.returncode == one.returncode == 0
    """
    outcome, reports = attempt(script, until=3, launch="node")
    assert outcome.kind == "ended", outcome.message
    assert found(reports) == [(1, 1.0), (2, 1.0), (3, 1.0)]


def test_a_script_for_wandb_finds_its_parameters_in_the_configuration_of_its_run(
    attempt, tmp_path, monkeypatch
):
    script = """
        import hposvc, wandb
        run = wandb.init(mode="offline", config={"lr": 5.0, "net": {"width": 1}, "epochs": 3})
        assert run.config.net["kind"] == "1e5", run.config.net
        metrics = {"loss": run.config.lr, "width": run.config.net["width"]}
        hposvc.report({**metrics, "epochs": run.config.epochs})
    """
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    params = {"lr": 1e-05, "net.width": 8, "net.kind": "1e5"}
    outcome, reports = attempt(script, params=params)
    assert outcome.kind == "ended", outcome.message
    assert reports[0].metrics == {"loss": 1e-05, "width": 8.0, "epochs": 3.0}
    assert not list((tmp_path / "s").rglob("*-config"))


@pytest.mark.parametrize("until", [3, None])
def test_a_printed_step_told_again_is_left_out(attempt, until):
    script = """
        for epoch in range(1, 4):
            print(f"epoch {epoch} loss {1 / epoch}")
            print(f"epoch {epoch} loss {1 / epoch}")
        print("best: epoch 2 loss 0.5")
        print("final: epoch 3 loss n/a" if UNTIL else "")
    """.replace("UNTIL", repr(until))
    pattern = r"epoch (?P<step>\d+) loss (?P<loss>\S+)"
    outcome, reports = attempt(script, collect=pattern, until=until)
    assert (outcome.kind, outcome.how, outcome.warning) == ("ended", "returned", "")
    assert found(reports) == [(1, 1.0), (2, 0.5), (3, 1 / 3)]


@pytest.mark.parametrize("until", [3, 6, None])
def test_folds_that_count_from_1_again_are_named(attempt, until):
    script = """
        import hposvc
        for fold in (1.0, 2.0):
            for step in (1, 2, 3):
                hposvc.report({"loss": fold / step}, step)
    """
    outcome, reports = attempt(script, until=until)
    assert (outcome.kind, outcome.how) == ("ended", "returned")
    assert found(reports) == [(1, 1.0), (2, 0.5), (3, 1 / 3)]
    assert "step 1 was reported before with other values (loss is 2, was 1)" in outcome.warning
    assert "report the mean of the folds" in outcome.warning


def test_a_resumed_script_that_only_repeats_earlier_steps_fails_with_the_cause(attempt):
    script = "import hposvc; hposvc.report({'loss': 1.0}, step=1)"
    outcome, _ = attempt(script, first=2, until=3, total=3)
    assert outcome.kind == "user"
    line = error_line(outcome.message)
    assert "step 1 was reported before, and training goes on from step 2" in line


def test_the_ranks_of_a_program_agree_on_steps_told_again(attempt):
    script = """
        import os, sys, subprocess
        if "RANK" not in os.environ:
            ranks = [
                subprocess.Popen([sys.executable, __file__], env={**os.environ, "RANK": rank})
                for rank in "01"
            ]
            sys.exit(max(rank.wait() for rank in ranks))
        import hposvc
        for step in (1, 2, 1, 2, 3):
            hposvc.report({"loss": 1 / step}, step)
    """
    outcome, reports = attempt(script, until=3, launch="node")
    assert (outcome.kind, outcome.message, outcome.warning) == ("ended", "", "")
    assert found(reports) == [(1, 1.0), (2, 0.5), (3, 1 / 3)]
