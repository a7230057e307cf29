"""The driver of a digits sweep is killed again and again."""

import random

import aftermath
import psutil
import pytest
from terminal import GONE_S, LONG, ROUNDS, Terminal, until

from hposvc import api

pytestmark = [pytest.mark.ray, pytest.mark.full, pytest.mark.timeout(1800)]

TRIALS = 8 if LONG else 4
SWEEP = "digits"
SETTINGS = (
    f"trials.max={TRIALS}",
    "fidelity.max=9",
    "parameters.width=16",
    "resources.cpus_per_worker=0.5",
    "search.method=random",
)


def finished(terminal: Terminal) -> dict[str, tuple[object, ...]]:
    """What stays of the trials that are over, whatever comes."""
    return {
        trial.trial: (trial.state, trial.value, trial.step, trial.attempts)
        for trial in api.load(api.Sweeps.open(terminal.home), SWEEP).trials()
        if trial.state in ("COMPLETED", "STOPPED")
    }


def runs(terminal: Terminal, trials: dict[str, tuple[object, ...]]) -> dict[str, str]:
    recorded = terminal.journal.runs(SWEEP)
    return {trial: recorded[trial] for trial in trials if trial in recorded}


def test_a_sweep_survives_its_driver_being_killed_at_random_moments(terminal):
    """Peers: restore loses trials; MLflow runs stay RUNNING, or are there twice, after it."""
    rng = random.Random(ROUNDS)
    sets = [part for setting in SETTINGS for part in ("--set", setting)]
    driver = terminal.start("run", "examples/digits.yaml", "--id", SWEEP, *sets)
    kills = 0
    for number in range(ROUNDS):
        target = terminal.journal.last(SWEEP) + rng.randint(1, max(2, 10 * TRIALS // ROUNDS))
        if not terminal.reach(SWEEP, target, driver):
            break
        orphans = terminal.ranks()
        kills += 1
        if number % 2:
            driver.kill_driver()
            until(
                lambda said=driver.stderr: "another one goes on" in said.read_text(), "it goes on"
            )
            until(
                lambda gone=orphans: not any(map(psutil.Process.is_running, gone)), "gone", GONE_S
            )
            continue
        driver.kill()
        status = terminal.ask("status", SWEEP)
        assert (status["state"], status["driver"]) == ("INTERRUPTED", "dead")
        over = finished(terminal)
        kept = runs(terminal, over)
        driver = terminal.start("resume", SWEEP)  # at once: the old ranks still live
        until(lambda gone=orphans: not any(map(psutil.Process.is_running, gone)), "gone", GONE_S)
        terminal.reach(SWEEP, terminal.journal.last(SWEEP) + 1, driver)
        assert over.items() <= finished(terminal).items()
        assert kept.items() <= terminal.journal.runs(SWEEP).items()
    code, said = driver.end()
    assert code == 0, said
    assert kills >= ROUNDS // 2
    aftermath.check(terminal.home, SWEEP, TRIALS)
    until(lambda: not terminal.processes(), "nothing is left", GONE_S)
