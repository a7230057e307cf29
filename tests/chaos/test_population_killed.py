"""The driver of a population is killed again and again; its lineage stays what the weights say."""

import random
from itertools import pairwise
from pathlib import Path

import aftermath
import psutil
import pytest
from ruamel.yaml import YAML
from terminal import GONE_S, ROUNDS, until

from hposvc import api
from hposvc.analysis.lineage import ancestry
from hposvc.events import Ordered

pytestmark = [pytest.mark.ray, pytest.mark.full, pytest.mark.timeout(1800)]

SWEEP = "population"
MEMBERS = 5
SPEC = {
    "trainable": "fragile:inherits",
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 8},
    "parameters": {"lr": {"min": 1e-4, "max": 1e-1, "log": True}},
    "search": "random",
    "scheduler": {
        **{"type": "pbt", "interval": 2, "quantile": 0.4, "resample": 0.0},
        "mutate": {"lr": {}},
    },
    "trials": {"max": MEMBERS, "parallel": 2},
    "resources": {"cpus_per_worker": 0.5},
    "seed": 3,
}


def test_a_population_survives_its_driver_being_killed_at_random_moments(terminal):
    file = terminal.home / "spec.yaml"
    YAML().dump(SPEC, file)
    rng = random.Random(ROUNDS)
    driver = terminal.start("run", str(file), "--id", SWEEP)
    kills = 0
    for _ in range(ROUNDS):
        target = terminal.journal.last(SWEEP) + rng.randint(5, max(10, 100 // ROUNDS))
        if not terminal.reach(SWEEP, target, driver):
            break
        orphans = terminal.ranks()
        driver.kill()
        kills += 1
        driver = terminal.start("resume", SWEEP)
        until(lambda gone=orphans: not any(map(psutil.Process.is_running, gone)), "gone", GONE_S)
    code, said = driver.end()
    assert code == 0, said
    assert kills >= ROUNDS // 2
    aftermath.check(terminal.home, SWEEP, MEMBERS)
    check_lineage(api.Sweeps.open(terminal.home))
    until(lambda: not terminal.processes(), "nothing is left", GONE_S)


def check_lineage(sweeps):
    """What the journal says of weights is what they say; each copy is a legal move."""
    record = api.load(sweeps, SWEEP)
    copies = 0
    for trial in record.state.trials.values():
        assert trial.step == 8
        for before, life in pairwise(trial.segments):
            copies += 1
            assert life.after > before.after
            assert life.after % 2 == 0
            assert life.parent not in (None, trial.id)
    assert copies, "some copied others"
    check_moves(event for _, event in sweeps.journal.read(SWEEP) if isinstance(event, Ordered))
    for trial in record.state.trials.values():
        for saved in trial.checkpoints:
            account = [
                f"{stretch.trial} {step} {stretch.params['lr']!r}"
                for stretch in ancestry(record.state, trial.id, saved.step)
                for step in range(stretch.first, stretch.last + 1)
            ]
            assert (Path(saved.path) / "weights").read_text().splitlines() == account


def check_moves(ordered):
    """Each copy has its donor's value at the time, times 0.8 or 1.2; a retry has the same."""
    now, copied = {}, {}
    for event in ordered:
        order = event.order
        given = order.params["lr"]
        if order.parent is not None and copied.get(order.trial) != (order.start, order.first):
            copied[order.trial] = (order.start, order.first)
            moves = [min(max(now[order.parent] * by, 1e-4), 1e-1) for by in (0.8, 1.2)]
            assert any(given == pytest.approx(move) for move in moves)
        elif order.trial in now:
            assert given == now[order.trial]
        now[order.trial] = given
