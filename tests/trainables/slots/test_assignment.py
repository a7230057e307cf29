"""One order on one rank, in this process. If these fail, faults are blamed on the wrong party."""

import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from trainables.checkpoints.checkpoint import Saved
from trainables.load import LoadError
from trainables.slots.assignment import (
    Assignment,
    Inherited,
    Place,
    carry_out,
    import_trainable,
    log_file,
)
from trainables.slots.capturing import captured
from trainables.training import Training
from trainables.worker import LocalLink

needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
TRAINABLES = """
import os, sys
from dataclasses import dataclass
from trainables.worker import Diverged, TooLarge

def fine(params, worker):
    os.environ["LEFT"] = "behind"
    print("seen")
    worker.report(1, {"loss": params["lr"]})

def raises(params, worker):
    raise ValueError("bad batch")

def fills_the_gpu(params, worker):
    import torch
    raise torch.OutOfMemoryError("CUDA out of memory")

def fills_the_machine(params, worker):
    bytearray(2**60)

def fills_it_with_a_tensor(params, worker):
    import torch
    torch.empty(10**15)

def says_it_otherwise(params, worker):
    try:
        bytearray(2**60)
    except MemoryError as error:
        raise ValueError("batch is too large") from error

def halves(params, worker):
    try:
        bytearray(2**60)
    except MemoryError as error:
        raise TooLarge("a micro-batch of 8 samples did not fit") from error

def fills_the_disk(params, worker):
    with open("/dev/full", "wb") as stream:
        stream.write(b"1" * 2**16)

def fills_the_log(params, worker):
    print("told", file=open("/dev/full", "w"), flush=True)

def diverges(params, worker):
    raise Diverged("loss nan after 10 skipped updates")

@dataclass
class Task:
    lr: float

    def train(self, worker):
        worker.report(1, {"loss": worker.shrink, "rollback": float(worker.nan == "rollback")})

def exits(params, worker):
    sys.exit(3)

def restores(params, worker):
    worker.restore()

def silent(params, worker):
    pass

def told(params, worker):
    worker.report(1, {"loss": float(os.environ["MLFLOW_RUN_ID"])})
"""


@pytest.fixture
def attempt(tmp_path):
    """Carries an order out, and returns its outcome and link."""
    file = tmp_path / "mine.py"
    file.write_text(TRAINABLES)

    def run(name, start=None, environment=None, nan="stop", shrink=0):
        place = Place(f"{file}:{name}", Training(), ("loss",), 1, 1, 0, tmp_path, nan=nan)
        task = Assignment(
            5, "t0003", {"lr": 0.5}, start, 1, 1, (), environment or {}, shrink=shrink
        )
        link = LocalLink()
        return carry_out(place, task, 0, link), link

    return run


def test_an_order_that_ends_leaves_the_process_as_it_was(attempt):
    outcome, link = attempt("fine")
    assert (outcome.order, outcome.kind, outcome.residues) == (5, "ended", ())
    assert [report.metrics for report in link.reports] == [{"loss": 0.5}]
    assert "LEFT" not in os.environ


def test_what_the_user_s_code_raises_is_the_user_s(attempt):
    outcome, _ = attempt("raises")
    assert outcome.kind == "user"
    assert "ValueError: bad batch" in outcome.message


@pytest.mark.parametrize(
    "name", ["fills_the_gpu", "fills_the_machine", "fills_it_with_a_tensor", "says_it_otherwise"]
)
def test_too_little_memory_is_told_apart(attempt, name):
    """To try again would fill the memory again; the searcher is to learn where it ends."""
    assert attempt(name)[0].kind == "oom"


@needs_full
@pytest.mark.parametrize("name", ["fills_the_disk", "fills_the_log"])
def test_a_full_disk_is_nobody_s_fault(attempt, name):
    """Blamed on the user's code, each trial that comes to the full disk would be given up."""
    outcome, _ = attempt(name)
    assert outcome.kind == "storage"
    assert "No space left on device" in outcome.message.strip().splitlines()[-1]


@needs_full
def test_a_rank_lives_though_there_is_no_room_for_its_log(capfd):
    """A rank that dies of it could not say what was wrong, and would cost a retry."""
    with captured(Path("/dev/full")):
        sys.stdout.write("lost")  # waits in a buffer, which there is no room to empty
    sys.stdout.write("seen\n")
    sys.stdout.flush()
    assert capfd.readouterr().out.endswith("seen\n")


def test_half_of_a_micro_batch_may_fit_where_a_whole_one_does_not(attempt):
    """Taken for plain lack of memory, the trial would be given up."""
    outcome, _ = attempt("halves")
    assert outcome.kind == "oversize"
    assert outcome.message.strip().endswith("a micro-batch of 8 samples did not fit")


def test_a_training_that_can_t_go_on_is_no_error_of_the_user_s_code(attempt):
    outcome, _ = attempt("diverges")
    assert (outcome.kind, outcome.message) == ("diverged", "loss nan after 10 skipped updates")


def test_a_rank_is_told_how_small_and_what_to_do_about_nan(attempt):
    _, link = attempt("Task", nan="rollback", shrink=3)
    assert link.reports[0].metrics == {"loss": 3.0, "rollback": 1.0}


def test_a_function_can_t_do_as_it_is_told_about_nan(attempt):
    """It would be ignored without a word: the function makes its updates itself."""
    outcome, link = attempt("fine", nan="skip")
    assert outcome.kind == "user"
    assert "failure.nan is skip, but" in outcome.message
    assert "mine.py:fine makes its updates itself; write nan: stop" in outcome.message
    assert link.reports == []


def test_an_exit_in_the_user_s_code_is_an_error_of_its_own(attempt):
    """It must neither kill the rank nor count as infrastructure."""
    outcome, _ = attempt("exits")
    assert outcome.kind == "user"
    assert "SystemExit: 3" in outcome.message


def test_a_checkpoint_that_is_not_there_is_told_apart(attempt, tmp_path):
    outcome, _ = attempt("restores", start=Saved(1, str(tmp_path / "gone"), "0" * 64, 1))
    assert outcome.kind == "damaged"


def test_a_function_that_never_reports_is_told_how(attempt):
    assert "call worker.report(step, {...})" in attempt("silent")[0].message


def test_rank_0_sees_its_mlflow_run_during_the_order_only(attempt):
    _, link = attempt("told", environment={"MLFLOW_RUN_ID": "17"})
    assert link.reports[0].metrics == {"loss": 17.0}
    assert "MLFLOW_RUN_ID" not in os.environ


def test_output_of_child_processes_is_captured_too(tmp_path):
    file = log_file(tmp_path, "t0001", 2, 0)
    with captured(file):
        subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
    assert file.read_text() == "from a child\n"


def test_a_process_takes_its_driver_s_environment_but_ray_s_part(tmp_path):
    """Peers: two sweeps collide; a shared Ray carries the environment of who came first."""
    mine = Inherited({"MY_DATA": "b", "PATH": os.environ["PATH"]}, str(tmp_path))
    code = (
        "import os, sys; from trainables.slots.assignment import Inherited; "
        f"Inherited({dict(mine.environment)!r}, {mine.folder!r}).take_over(); "
        "print(os.environ['MY_DATA'], 'THEIRS' in os.environ, "
        "os.environ['CUDA_VISIBLE_DEVICES'], os.getcwd())"
    )
    theirs = {**os.environ, "MY_DATA": "a", "THEIRS": "1", "CUDA_VISIBLE_DEVICES": "3"}
    root = Path(__file__).parents[3]
    found = subprocess.run(
        [sys.executable, "-c", code], env=theirs, cwd=root, capture_output=True, text=True
    )
    assert found.stdout.split() == ["b", "False", "3", str(tmp_path)], found.stderr


def test_neither_output_nor_errors_of_an_import_hold_a_secret(tmp_path):
    file, log = tmp_path / "broken.py", tmp_path / "logs" / "slots" / "slot-0-0.log"
    place = Place(
        f"{file}:train", Training(), ("loss",), 1, 1, 0, tmp_path, secrets={"KEY": "hunter"}
    )
    file.write_text("import os\nos.write(1, b'logging in with hun' + b'ter')\ntrain = print\n")
    import_trainable(place, log)
    assert log.read_text() == "logging in with [secret]"
    file.write_text("raise KeyError('no access with ' + 'hun' + 'ter')\n")
    with pytest.raises(LoadError, match=r"fails when it is loaded: KeyError: .*\[secret\]") as told:
        import_trainable(place, log)
    assert "hunter" not in "".join(traceback.format_exception(told.value))
    file.write_text("raise KeyError('lr')\n")
    with pytest.raises(KeyError, match="lr"):
        import_trainable(place, log)
