"""`engine: local` with several ranks: whole sweeps in processes of this machine, without Ray."""

import json
import subprocess
import sys

import psutil
import pytest
from real_server import CODE, environment
from waiting import until

import hposvc
from hposvc import api
from hposvc.backends.process.rank_commands import RANK
from hposvc.events import Failed, Ordered, Reported

TWO_RANKS = {
    "engine": "local",
    "resources": {"workers": 2, "cpus_per_worker": 0.5},
    "tracking": {"send_to": []},
}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HPOSVC_HOME", f"{tmp_path / 'home'}")
    return tmp_path / "home"


def ranks():
    """Return the ranks that are children of this process, which may have a Ray of other tests."""
    return [child for child in psutil.Process().children() if RANK[-1] in child.cmdline()]


def events_of(sweep, kind):
    events = api.Sweeps.open().journal.read(sweep)
    return [event for _, event in events if isinstance(event, kind)]


@pytest.mark.long
def test_digits_train_with_ddp_on_two_ranks_and_a_bad_trial_is_stopped_midway(home):
    result = hposvc.Sweep(
        trainable="trainables.zoo.digits:DigitsCNN",
        metric={"name": "val/accuracy", "goal": "maximize"},
        fidelity={"unit": "epoch", "max": 3},
        parameters={"lr": {"values": [6e-3, 1e-7]}, "width": 16},
        search="grid",
        trials={"max": 2},
        scheduler="asha",
        training={"strategy": "ddp"},
        **TWO_RANKS,
    ).run(progress=False)
    sweep = api.Sweeps.open().journal.sweeps()[0].id
    state = api.load(api.Sweeps.open(), sweep).state
    ended = {trial.params["lr"]: (trial.state, trial.step) for trial in state.trials.values()}
    assert ended == {6e-3: ("COMPLETED", 3), 1e-7: ("STOPPED", 1)}
    assert result.best.value > 0.5
    folder = api.Sweeps.open().home.folder(sweep, None)
    assert sorted(log.name for log in folder.glob("logs/t0001/*.log")) == ["1-0.log", "1-1.log"]
    assert not (home / "ray").exists()
    assert not ranks(), "they are gone"


def test_an_error_on_one_rank_is_the_trial_s_failure_with_that_rank_s_traceback():
    hposvc.Sweep(
        trainable="toys:one_rank_raises",
        metric={"name": "loss", "goal": "minimize"},
        fidelity={"max": 3},
        parameters={"bad": {"values": [1, 0]}},
        search="grid",
        trials={"max": 2},
        failure={"user_retries": 0},
        **TWO_RANKS,
    ).run(progress=False)
    sweep = api.Sweeps.open().journal.sweeps()[0].id
    [failed] = events_of(sweep, Failed)
    assert failed.cause == "user"
    assert failed.message.startswith("rank 1 of 2:\nTraceback")
    assert failed.message.rstrip().endswith("ValueError: the batch of rank 1 is empty")
    good = [event for event in events_of(sweep, Reported) if event.trial != failed.trial]
    assert [event.step for event in good] == [1, 2, 3]


def test_ranks_that_cannot_start_end_the_sweep_with_the_reason(tmp_path):
    code = 'import os\n\nif "RANK" in os.environ:\n    raise OSError("no licence")\n'
    (tmp_path / "licensed.py").write_text(f"{code}\n\ndef train(params, worker):\n    pass\n")
    with pytest.raises(hposvc.OutOfReach, match=r"a rank could not start: .*no licence"):
        hposvc.Sweep(
            trainable=f"{tmp_path}/licensed.py:train",
            metric={"name": "loss", "goal": "minimize"},
            fidelity={"max": 3},
            parameters={"lr": 0.1},
            trials={"max": 1},
            **TWO_RANKS,
        ).run(progress=False)
    assert not ranks()


@pytest.mark.long
def test_a_killed_driver_takes_its_ranks_along_and_its_sweep_resumes(home, tmp_path):
    (tmp_path / "code.py").write_text(CODE)
    spec = {
        "name": "killed",
        "trainable": "code.py:train",
        "metric": {"name": "loss", "goal": "minimize"},
        "fidelity": {"max": 20},
        "parameters": {"lr": 0.1},
        "trials": {"max": 1},
        **TWO_RANKS,
    }
    (tmp_path / "sweep.yaml").write_text(json.dumps(spec))
    hposvc_here = (sys.executable, "-P", "-m", "hposvc")
    with subprocess.Popen(
        [*hposvc_here, "run", "sweep.yaml", "--id", "s"], cwd=tmp_path, env=environment(home)
    ) as driver:
        until(lambda: events_of("s", Reported)[3:], "four reports")
        ranks = psutil.Process(driver.pid).children(recursive=True)
        driver.kill()
    until(lambda: not any(map(psutil.Process.is_running, ranks)), "the ranks are gone")
    assert len(ranks) >= 2
    subprocess.run([*hposvc_here, "resume", "s"], env=environment(home), check=True)
    assert api.load(api.Sweeps.open(), "s").state.state == "COMPLETED"
    assert [event.step for event in events_of("s", Reported)] == [*range(1, 21)]
    first, second = events_of("s", Ordered)
    assert (first.order.start, second.order.start is None) == (None, False)
