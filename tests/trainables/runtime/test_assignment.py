"""Orders carried out in this process. If these fail, faults are blamed on the wrong party."""

import errno
import os
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from trainables.load import LoadError
from trainables.order import Order
from trainables.runtime.assignment import (
    Assignment,
    Inherited,
    SlotConfig,
    carry_out,
    import_trainable,
    outcome_kind,
)
from trainables.storage.stores import StoreFailed
from trainables.training import Training
from trainables.worker import LocalLink

needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
TRAINABLES = """
import os, sys
from dataclasses import dataclass

def fine(params, worker):
    os.environ["LEFT"] = "behind"
    print("seen")
    worker.report(1, {"loss": params["lr"]})

def raises(params, worker):
    raise ValueError("bad batch")

def fills_the_disk(params, worker):
    with open("/dev/full", "wb") as stream:
        stream.write(b"1" * 2**16)

def fills_the_log(params, worker):
    print("told", file=open("/dev/full", "w"), flush=True)

@dataclass
class Task:
    lr: float

    def train(self, worker):
        worker.report(1, {"loss": worker.shrink, "rollback": float(worker.nan == "rollback")})

def exits(params, worker):
    sys.exit(3)

def is_interrupted(params, worker):
    raise KeyboardInterrupt

def leaves_a_generator(params, worker):
    raise GeneratorExit

def is_cancelled(params, worker):
    import asyncio
    raise asyncio.CancelledError

def fails_a_test(params, worker):
    import pytest
    pytest.fail("loss is too high")

class Mute(Exception):
    def __str__(self):
        raise KeyError("text")

def says_nothing(params, worker):
    raise Mute

def names_a_file(params, worker):
    raise ValueError("no image in " + os.fsdecode(b"\\xff.png"))

def closes_its_streams(params, worker):
    sys.stderr = open(os.devnull, "w")
    sys.stderr.close()
    raise ValueError("bad batch")

def says_all(params, worker):
    raise ValueError("begin " + "x" * 5_000_000 + " end")

def silent(params, worker):
    pass

def told(params, worker):
    worker.report(1, {"loss": float(os.environ["MLFLOW_RUN_ID"])})

def distributed(params, worker):
    worker.report(1, {"loss": float("RANK" in os.environ or "WORLD_SIZE" in os.environ)})
"""


@pytest.fixture
def attempt(tmp_path):
    """A function that carries out an order, and returns its outcome and link."""
    file = tmp_path / "mine.py"
    file.write_text(TRAINABLES)

    def run(name, start=None, environment=None, nan="stop", shrink=0):
        config = SlotConfig(f"{file}:{name}", Training(), ("loss",), 1, 1, 0, tmp_path, nan=nan)
        order = Order(5, "t0003", {"lr": 0.5}, start, 1, 1, shrink=shrink)
        task = Assignment(order, environment or {})
        link = LocalLink()
        return carry_out(config, task, 0, link), link

    return run


def test_an_order_that_ends_leaves_the_process_as_it_was(attempt):
    outcome, link = attempt("fine")
    assert (outcome.order, outcome.kind, outcome.leaks) == (5, "ended", ())
    assert [report.metrics for report in link.reports] == [{"loss": 0.5}]
    assert "LEFT" not in os.environ


@pytest.mark.parametrize(("strategy", "told"), [("single", 0.0), ("ddp", 1.0)])
def test_a_lone_rank_has_torchrun_s_variables_only_if_asked(tmp_path, strategy, told):
    (tmp_path / "mine.py").write_text(TRAINABLES)
    name, training = f"{tmp_path / 'mine.py'}:distributed", Training(strategy=strategy)
    config = SlotConfig(name, training, ("loss",), 1, 1, 0, tmp_path)
    link = LocalLink()
    carry_out(config, Assignment(Order(5, "t0003", {"lr": 0.5}, None, 1, 1, ())), 0, link)
    assert [report.metrics for report in link.reports] == [{"loss": told}]


# As torch 2.13 says it, on a GPU that others use too.
FULL = (
    "CUDA out of memory. Tried to allocate {wanted} GiB. GPU 0 has a total capacity of 80.00 GiB "
    "of which {free} GiB is free. Process 77 has 9.00 GiB memory in use. Including non-PyTorch "
    "memory, this process has {held} GiB memory in use. 36.00 GiB allowed; Of the allocated memory"
)


class PeerLost(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("training.gradient_compression is bf16, but only NCCL adds bf16 up"), "user"),
        (RuntimeError("my data set of glooms has NCCL in its name"), "user"),
        (KeyError("gloo"), "user"),
        (
            RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed"),
            "collateral",
        ),
        (
            RuntimeError(
                "[/pytorch/gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 20 vs 8"
            ),
            "user",
        ),
        (PeerLost("rank 0 has left"), "collateral"),
    ],
)
def test_only_errors_of_the_process_group_count_as_lost_peers(error, kind):
    """Other errors may name NCCL or gloo too; they would be tried again for nothing."""
    assert outcome_kind(error) == kind


def read_nothing():
    with open("/proc/self/mem", "rb") as memory:  # noqa: PTH123
        memory.read(1)  # page 0 is never mapped: Errno 5, without a name


def wrapped(error):
    failure = RuntimeError("the checkpoint was not written")
    failure.__cause__ = error
    return failure


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.EIO, "Input/output error", "/data/s/checkpoints/t0001/1-1/w"), "collateral"),
        (OSError(errno.EIO, "Input/output error"), "collateral"),
        (wrapped(OSError(errno.ESTALE, "Stale file handle")), "collateral"),
        (OSError(errno.EROFS, "Read-only file system", "/data/s/logs/t0001/1-0.log"), "collateral"),
        (
            TimeoutError(errno.ETIMEDOUT, "Connection timed out", "/data/s/checkpoints"),
            "collateral",
        ),
        (
            shutil.Error(
                [("a", "b", "[Errno 107] Transport endpoint is not connected: '/data/s/c'")]
            ),
            "collateral",
        ),
        (wrapped(StoreFailed("storage s3://b: can't write: ConnectionError")), "collateral"),
        (OSError(errno.EIO, "Input/output error", "/other/images/7.png"), "user"),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), "user"),
        (OSError(errno.EROFS, "Read-only file system", "/usr/cache"), "user"),
        (OSError(errno.ENOENT, "No such file or directory", "/data/s/checkpoints/x"), "user"),
        (OSError(errno.ENOSPC, "No space left on device", "/data/s/checkpoints/x"), "storage"),
    ],
    ids=repr,
)
def test_a_fault_of_the_sweep_s_storage_is_not_the_user_s(error, kind):
    assert outcome_kind(error, folder=Path("/data/s")) == kind


def test_a_read_that_the_system_fails_names_no_file_and_is_not_the_user_s():
    with pytest.raises(OSError, match="Errno 5") as failed:
        read_nothing()
    assert outcome_kind(failed.value, folder=Path("/data/s")) == "collateral"


@pytest.mark.parametrize(
    ("wanted", "free", "held", "share", "kind"),
    [
        ("2.00", "1.00", "60.00", 1.0, "collateral"),  # there was room, but for a stranger
        ("2.00", "1.00", "79.00", 1.0, "oom"),
        ("2.00", "1.00", "10.00", 0.5, "collateral"),  # the neighbour has more than its half
        ("2.00", "40.00", "35.00", 0.5, "oom"),  # more than its own half
        ("2.00", "40.00", "10.00", 0.5, "oom"),  # more than training.memory_fraction
    ],
)
def test_memory_that_others_took_is_not_held_against_the_configuration(
    wanted, free, held, share, kind
):
    error = RuntimeError(FULL.format(wanted=wanted, free=free, held=held))
    assert outcome_kind(error, share) == kind


@needs_full
@pytest.mark.parametrize("name", ["fills_the_disk", "fills_the_log"])
def test_a_full_disk_is_nobody_s_fault(attempt, name):
    """Blamed on the user's code, each trial that comes to the full disk would be given up."""
    outcome, _ = attempt(name)
    assert outcome.kind == "storage"
    assert "No space left on device" in outcome.message.strip().splitlines()[-1]


def test_a_rank_is_told_how_small_and_what_to_do_about_nan(attempt):
    _, link = attempt("Task", nan="rollback", shrink=3)
    assert link.reports[0].metrics == {"loss": 3.0, "rollback": 1.0}


def test_a_function_can_t_do_as_it_is_told_about_nan(attempt):
    """The option would be ignored silently: the function makes its updates itself."""
    outcome, link = attempt("fine", nan="skip")
    assert outcome.kind == "user"
    assert "failure.nan is skip, but" in outcome.message
    assert "mine.py:fine makes its updates itself; write nan: stop" in outcome.message
    assert link.reports == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", "ValueError: bad batch"),
        ("exits", "exit status 3: it called sys.exit"),
        ("is_interrupted", "KeyboardInterrupt"),
        ("leaves_a_generator", "GeneratorExit"),
        ("is_cancelled", "CancelledError"),
        ("fails_a_test", "Failed: loss is too high"),
        ("says_nothing", "Mute: <exception str() failed>"),
        ("names_a_file", "ValueError: no image in \\udcff.png"),
        ("closes_its_streams", "ValueError: bad batch"),
    ],
)
def test_whatever_the_user_s_code_raises_is_told_and_the_rank_lives(
    attempt, name, said, monkeypatch
):
    monkeypatch.setattr(sys, "stderr", sys.stderr)  # which one of them replaces
    outcome, _ = attempt(name)
    assert (outcome.kind, outcome.leaks) == ("user", ())
    assert outcome.message.strip().endswith(said)
    outcome.message.encode()  # as it is sent and stored


def test_of_a_long_text_head_and_tail_are_kept(attempt):
    """The message is kept in the journal, once for each try."""
    outcome, _ = attempt("says_all")
    assert len(outcome.message) < 20_100
    assert "ValueError: begin xxx" in outcome.message
    assert outcome.message.endswith("xxx end\n")
    assert "characters left out" in outcome.message


def test_an_exit_while_the_trainable_is_imported_is_an_error_with_words(tmp_path):
    """A SystemExit would end the process as if somebody had asked it to exit."""
    (file := tmp_path / "leaves.py").write_text("import sys\nsys.exit('no licence')\n")
    config = SlotConfig(f"{file}:train", Training(), ("loss",), 1, 1, 0, tmp_path)
    with pytest.raises(LoadError, match="fails when it is loaded: SystemExit: no licence"):
        import_trainable(config, tmp_path / "log")


def test_a_function_that_never_reports_is_told_how(attempt):
    assert "call worker.report(step, {...})" in attempt("silent")[0].message


def test_rank_0_sees_its_mlflow_run_during_the_order_only(attempt):
    _, link = attempt("told", environment={"MLFLOW_RUN_ID": "17"})
    assert link.reports[0].metrics == {"loss": 17.0}
    assert "MLFLOW_RUN_ID" not in os.environ


def test_a_process_takes_its_driver_s_environment_but_ray_s_part(tmp_path):
    """Peers: two sweeps collide; a shared Ray carries the environment of who came first."""
    mine = Inherited({"MY_DATA": "b", "PATH": os.environ["PATH"]}, str(tmp_path))
    code = (
        "import os, sys; from trainables.runtime.assignment import Inherited; "
        f"Inherited({dict(mine.environment)!r}, {mine.folder!r}).take_over(); "
        "print(os.environ['MY_DATA'], 'THEIRS' in os.environ, "
        "os.environ['CUDA_VISIBLE_DEVICES'], os.getcwd())"
    )
    theirs = {**os.environ, "MY_DATA": "a", "THEIRS": "1", "CUDA_VISIBLE_DEVICES": "3"}
    root = Path(__file__).parents[3]
    ran = subprocess.run(
        [sys.executable, "-c", code], env=theirs, cwd=root, capture_output=True, text=True
    )
    assert ran.stdout.split() == ["b", "False", "3", str(tmp_path)], ran.stderr


def test_the_number_of_threads_is_rays_unless_the_user_set_it(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    here = Inherited.here().environment
    assert here["OMP_NUM_THREADS"] == "3"
    assert "CUDA_VISIBLE_DEVICES" not in here
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setenv("WHO", "ann")
    here = Inherited.here().environment
    assert "OMP_NUM_THREADS" not in here
    assert here["WHO"] == "ann"


def test_neither_output_nor_errors_of_an_import_hold_a_secret(tmp_path):
    file, log = tmp_path / "broken.py", tmp_path / "logs" / "slots" / "slot-0-0.log"
    config = SlotConfig(
        f"{file}:train", Training(), ("loss",), 1, 1, 0, tmp_path, secrets={"KEY": "hunter"}
    )
    file.write_text("import os\nos.write(1, b'logging in with hun' + b'ter')\ntrain = print\n")
    import_trainable(config, log)
    assert log.read_text() == "logging in with [secret]"
    file.write_text("raise KeyError('no access with ' + 'hun' + 'ter')\n")
    with pytest.raises(
        LoadError, match=r"fails when it is loaded: KeyError: .*\[secret\]"
    ) as caught:
        import_trainable(config, log)
    assert "hunter" not in "".join(traceback.format_exception(caught.value))
    file.write_text("raise KeyError('lr')\n")
    with pytest.raises(KeyError, match="lr"):
        import_trainable(config, log)
