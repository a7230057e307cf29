"""Signals to the processes around a sweep: its driver, the keeper of Ray, the ranks."""

import os
import signal
import time

import aftermath
import psutil
import pytest
from terminal import GONE_S, title, until

from hposvc.errors import INTERRUPTED, TERMINATED
from hposvc.events import Failed, Ordered, Reported

pytestmark = [pytest.mark.ray, pytest.mark.long]

SWEEP = "gated"
TRIALS = 2


@pytest.fixture
def gate(tmp_path):
    """Trials stop at step 3 until this file is there."""
    return tmp_path / "gate"


@pytest.fixture
def driver(terminal, gate):
    """The driver of a sweep whose two trials both wait at the gate."""
    spec = {
        "trainable": "fragile:gated",
        "metric": {"name": "loss", "goal": "minimize"},
        "fidelity": {"max": 5},
        "parameters": {"lr": {"min": 1e-4, "max": 1e-1, "log": True}, "gate": str(gate)},
        "search": "random",
        "trials": {"max": TRIALS, "parallel": 2},
        "resources": {"cpus_per_worker": 0.5},
    }
    command = terminal.run(spec, SWEEP)
    until(lambda: len(reports(terminal, step=2)) == TRIALS, "the trials wait at the gate")
    return command


def happened(terminal, kind):
    return [event for _, event in terminal.journal.read(SWEEP) if isinstance(event, kind)]


def reports(terminal, step):
    return [event for event in happened(terminal, Reported) if event.step == step]


def finish(terminal, gate):
    """Resume the sweep; it must end with nothing lost, twice or left behind."""
    gate.touch()
    code, said = terminal.start("resume", SWEEP).end()
    assert code == 0, said
    return expect_sound(terminal)


def expect_sound(terminal):
    until(lambda: not terminal.processes(), "nothing is left", GONE_S)
    return aftermath.check(terminal.home, SWEEP, TRIALS)


@pytest.mark.parametrize(
    ("victim", "number"),
    [
        pytest.param("keeper", signal.SIGKILL, marks=pytest.mark.full),
        pytest.param("gcs_server", signal.SIGKILL, marks=pytest.mark.full),
        ("raylet", signal.SIGTERM),
        pytest.param("ray::RuntimeEnvAgent", signal.SIGKILL, marks=pytest.mark.full),
    ],
    ids=lambda value: f"{value}".removeprefix("ray::"),
)
def test_without_this_machine_s_own_ray_a_driver_ends_and_the_sweep_can_be_resumed(
    terminal, driver, gate, victim, number
):
    """Left to itself a driver waits for ever for a slot, or Ray ends it after a minute."""
    part_of_ray(terminal, victim).send_signal(number)
    began = time.monotonic()
    code, said = driver.end()
    assert code == 5, said
    assert time.monotonic() - began < 30
    assert "this machine's own Ray has died" in said
    assert terminal.ask("status", SWEEP)["driver"] == "none", "it let go of its lease"
    assert f"`hposvc resume {SWEEP}` goes on" in said
    until(lambda: not terminal.processes(), "nothing is left", GONE_S)
    ledger = finish(terminal, gate)
    assert ledger.orders == 2 * TRIALS, (
        "the first failed with its rank, or was lost with the driver"
    )


def part_of_ray(terminal, name):
    """A process of this home's Ray, by the name that it shows."""
    keeper = terminal.keeper()
    if name == "keeper":
        return keeper
    [found] = [
        each
        for each in keeper.children(recursive=True)
        if name in (each.name(), title(each).strip())
    ]
    return found


def expect_interrupted(terminal, driver, code):
    ended, said = driver.end()
    assert ended == code, said
    assert f"hposvc resume {SWEEP}" in said
    until(lambda: not terminal.processes(), "nothing is left", GONE_S)
    status = terminal.ask("status", SWEEP)
    assert (status["state"], status["driver"]) == ("INTERRUPTED", "none")


@pytest.mark.full
def test_an_interrupted_driver_leaves_nothing_but_the_way_to_resume(terminal, driver, gate):
    """SIGTERM, then Ctrl-C, and Ctrl-C again while the ranks are being ended."""
    driver.process.terminate()
    expect_interrupted(terminal, driver, TERMINATED)
    driver = terminal.start("resume", SWEEP)
    until(lambda: len(happened(terminal, Ordered)) == 2 * TRIALS, "the sweep goes on")
    ranks = len(terminal.ranks())
    os.killpg(driver.process.pid, signal.SIGINT)
    until(lambda: len(terminal.ranks()) < ranks, "the first Ctrl-C was heard")
    os.killpg(driver.process.pid, signal.SIGINT)
    expect_interrupted(terminal, driver, INTERRUPTED)
    finish(terminal, gate)


def test_a_killed_rank_costs_a_retry_and_a_frozen_one_can_be_killed(terminal, driver, gate):
    """Peers: hung trials. The sweep goes on without them, in the same driver."""
    broken, healthy = reports(terminal, step=2)
    psutil.Process(int(broken.metrics["pid"])).kill()
    until(lambda: len(happened(terminal, Ordered)) == TRIALS + 1, "the retry is ordered")
    retry = happened(terminal, Ordered)[-1].order
    assert (retry.trial, retry.first) == (broken.trial, 3)
    frozen = psutil.Process(int(healthy.metrics["pid"]))
    frozen.suspend()
    terminal.ask("kill", SWEEP, healthy.trial)
    until(lambda: not frozen.is_running(), "the frozen rank is gone")
    gate.touch()
    code, said = driver.end()
    assert code == 0, said
    assert [failure.cause for failure in happened(terminal, Failed)] == ["infra"]
    states = {each["trial"]: each["state"] for each in terminal.ask("trials", SWEEP)}
    assert states == {retry.trial: "COMPLETED", healthy.trial: "STOPPED"}
    until(lambda: not terminal.processes(), "nothing is left", GONE_S)


@pytest.mark.full
def test_of_two_drivers_that_resume_at_once_one_wins(terminal, driver, gate):
    driver.kill()
    until(lambda: not terminal.processes(), "a killed driver leaves nothing running", GONE_S)
    gate.touch()
    ends = [each.end() for each in [terminal.start("resume", SWEEP) for _ in range(2)]]
    (won, _), (lost, said) = sorted(ends)
    assert (won, lost) == (0, 2), said
    assert "a driver is at work on it" in said
    expect_sound(terminal)
