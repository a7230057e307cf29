"""Commands as trainables, from the spec's file to the process, without Ray."""

import time

import pytest

from hposvc.backends.backend import Setting
from hposvc.backends.local import Local
from hposvc.errors import SpecError
from hposvc.events import Ended, Failed, Reported
from hposvc.journal.journal import SweepRow
from hposvc.spec import dump, fingerprint, load
from trainables.order import Order

WAIT_S = 60
SCRIPT = """
import sys, time
lr = float(sys.argv[1].removeprefix("--lr="))
for epoch in range(1, 4):
    print(f"epoch {epoch}: loss={lr / epoch}", flush=True)
    time.sleep(600 if "slow" in sys.argv else 0)
sys.exit("out of data" if "fails" in sys.argv else 0)
"""


@pytest.fixture
def spec(tmp_path, monkeypatch):
    """Return a function that makes a spec of a script in the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)

    def make(*more, **sections):
        return {
            "command": ["python", "train.py", "${args}", *more],
            "collect": {"stdout": r"loss=(?P<loss>\S+)"},
            "metric": {"name": "loss", "goal": "minimize"},
            "parameters": {"lr": {"min": 1e-5, "max": 0.1, "log": True}},
            "fidelity": {"max": 3},
            "trials": {"max": 2},
            "engine": "local",
            **sections,
        }

    return make


@pytest.fixture
def happens(tmp_path):
    """Return a function that carries out an order and returns its events.

    It decides to stop the trial at each milestone.
    """
    engines = []

    def carry_out(data, milestones=()):
        engines.append(local := Local(Setting("s", load(data), tmp_path / "s", tmp_path)))
        local.start(Order(1, "t0001", {"lr": 0.3}, None, 1, 3, milestones), {})
        seen, deadline = [], time.monotonic() + WAIT_S
        while not (seen and isinstance(seen[-1], Ended | Failed)):
            assert time.monotonic() < deadline, seen
            for event in local.events(0.1):
                seen.append(event)
                if isinstance(event, Reported) and event.step in milestones:
                    local.decide(1, "stop")
        return seen

    yield carry_out
    for local in engines:
        local.close()


def losses(events):
    return [event.metrics["loss"] for event in events if isinstance(event, Reported)]


def test_an_order_runs_the_script_and_hears_its_metrics(spec, happens):
    assert losses(happens(spec())) == [0.3, 0.15, pytest.approx(0.1)]


def test_a_limit_sees_the_metric_of_its_step_on_the_next_line(spec, happens, tmp_path):
    """Otherwise every trial would break the limit, and the sweep would have no best trial."""
    script = SCRIPT.replace("flush=True)", "flush=True); print('latency=' + '9' * epoch)")
    (tmp_path / "train.py").write_text(script)
    pairs = {"stdout": r"(?P<name>loss|latency)=(?P<value>\S+)"}
    events = happens(spec(collect=pairs, limits=["latency <= 100"]))
    reported = [event.metrics.get("latency") for event in events if isinstance(event, Reported)]
    assert reported == [9.0, 99.0, 999.0]


def test_a_stop_does_not_wait_for_a_script_that_sleeps(spec, happens):
    events = happens(spec("slow"), milestones=(1,))
    assert losses(events) == [0.3]
    assert isinstance(events[-1], Ended)


def test_a_failure_says_what_the_script_said(spec, happens):
    failed = happens(spec("fails"))[-1]
    assert isinstance(failed, Failed)
    assert failed.cause == "user"
    assert "exit status 1" in failed.message
    assert failed.message.endswith("out of data")


def test_a_change_of_the_script_is_seen(spec, tmp_path):
    """Otherwise a resumed sweep would compare the results of two programs."""
    loaded = load(spec())
    row = SweepRow("s-1", "s", "p", 0.0, dump(loaded), fingerprint.describe(loaded))
    fingerprint.check_unchanged(row.id, row.spec, row.code)
    (tmp_path / "train.py").write_text(SCRIPT + "# changed")
    with pytest.raises(SpecError, match=r"command: python train\.py .* changed since s-1 began"):
        fingerprint.check_unchanged(row.id, row.spec, row.code)


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        (["torchrun", "--nproc_per_node=2", "train.py", "${args}"], "torchrun"),
        (["accelerate", "launch", "train.py", "${args}"], "accelerate launch"),
        (["python", "-m", "torch.distributed.run", "train.py", "${args}"], "torch.distributed.run"),
        (["deepspeed", "train.py", "${args}"], "deepspeed"),
        (["env", "A=1", "B=2", "torchrun", "train.py", "${args}"], "torchrun"),
        (["bash", "-c", "cd x && exec torchrun train.py ${args}"], "torchrun"),
    ],
)  # fmt: skip
def test_a_launcher_that_would_be_started_once_for_each_worker_is_refused(spec, command, launcher):
    sections = {"command": command, "engine": "ray", "resources": {"workers": 2}}
    with pytest.raises(SpecError, match="write launch: node") as raised:
        load(spec(**sections))
    assert f"command: starts {launcher} once for each of the 2 workers" in f"{raised.value}"
    load(spec(**sections, launch="node"))
    load(spec(**{**sections, "resources": {"workers": 1}}))


@pytest.mark.parametrize(
    "command",
    [
        ["python", "train.py", "--backend", "deepspeed", "${args}"],
        ["python", "torchrun.py", "${args}"],
        ["torchrun", "--node_rank=${RANK}", "--nnodes=${WORLD_SIZE}", "train.py", "${args}"],
        ["sh", "-c", "torchrun --node_rank=$RANK --nnodes=$WORLD_SIZE train.py ${args}"],
    ],
)
def test_ranks_that_start_no_ranks_of_their_own_are_not_refused(spec, command):
    load(spec(command=command, engine="ray", resources={"workers": 2}))
