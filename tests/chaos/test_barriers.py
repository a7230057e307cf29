"""The driver of a sweep whose trials wait for each other is killed again and again."""

import random
from collections import Counter

import aftermath
import pytest
from ruamel.yaml import YAML
from terminal import GONE_S, ROUNDS, until

from hposvc import api

pytestmark = [pytest.mark.ray, pytest.mark.full, pytest.mark.timeout(1800)]

SWEEP = "hyperband"
BRACKETS = (9, 5)  # trials that begin at steps 1 and 3, of 9
SPEC = {
    "trainable": "fragile:steady",
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 9},
    "parameters": {"lr": {"min": 1e-4, "max": 1e-1, "log": True}},
    "search": "random",
    "scheduler": "hyperband",
    "trials": {"max": sum(BRACKETS), "parallel": 2},
    "resources": {"cpus_per_worker": 0.5},
}
EVENTS = 150  # of the sweep if nothing happens to it


def test_brackets_survive_their_driver_being_killed_at_random_moments(terminal):
    """Peers: a restored scheduler has forgotten its rungs, and paused trials wait for ever."""
    rng = random.Random(ROUNDS)
    file = terminal.home / "spec.yaml"
    YAML().dump(SPEC, file)
    driver = terminal.start("run", str(file), "--id", SWEEP)
    kills = 0
    for target in sorted(rng.sample(range(10, EVENTS), max(2, ROUNDS // 2))):
        if not terminal.reach(SWEEP, target, driver):
            break
        driver.kill()
        kills += 1
        driver = terminal.start("resume", SWEEP)
    code, said = driver.end()
    assert code == 0, said
    assert kills
    aftermath.check(terminal.home, SWEEP, sum(BRACKETS))
    trials = api.load(api.Sweeps.open(terminal.home), SWEEP).trials()
    assert Counter(trial["step"] for trial in trials) == {1: 6, 3: 2 + 4, 9: 2}
    assert {trial["reason"] for trial in trials if trial["step"] < 9} == {"rung"}
    first, second = trials[: BRACKETS[0]], trials[BRACKETS[0] :]
    for bracket in (first, second):
        nearest = min(bracket, key=lambda trial: abs(trial["params"]["lr"] - 0.01))
        assert nearest["step"] == 9
    until(lambda: not terminal.processes(), "nothing is left", GONE_S)
