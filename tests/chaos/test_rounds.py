"""Rounds of chaos: a sweep, something that goes wrong at a random moment, and the promise after it.

The short form is a few rounds that are quick. `make chaos N=100` (HPOSVC_CHAOS_ROUNDS=N) plays N
more, from a seed that it prints; HPOSVC_CHAOS_SEED plays the same ones again.
"""

import os
import random
import shutil
import sys
from pathlib import Path

import pytest
from rounds import Plan, plan, play, summary
from terminal import Terminal

ROUNDS = int(os.environ.get("HPOSVC_CHAOS_ROUNDS", "100"))
SEED = int(os.environ.get("HPOSVC_CHAOS_SEED", "0")) or random.randrange(1, 10**6)

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300 + 300 * ROUNDS)]

QUICK = [
    Plan(1, "asha", ("searcher", "recorder")),
    Plan(2, "pbt", ("torn", "nan")),
    Plan(4, "pbt", ("driver",)),
    Plan(3, "hyperband", ("rank", "leak"), neighbour=True),
    Plan(5, "pbt", ("driver", "exclude")),
    Plan(6, "hyperband", ("driver", "seeds")),
    Plan(7, "hyperband", ("driver", "memo")),
]


@pytest.mark.full
@pytest.mark.parametrize("planned", QUICK, ids=lambda planned: "-".join(planned.injections))
def test_a_round_keeps_the_promise(terminal: Terminal, planned: Plan, capsys):
    """Peers: trials are lost or run again, points come twice, processes stay."""
    outcome = play(terminal, planned)
    tell(capsys, f"\n{outcome}")
    assert outcome.bit, outcome  # on a slow machine one of the two may come too late
    place = terminal.home / f"place-{planned.seed}"
    if (place / "searcher.at").exists():  # its proof is another: what the driver said
        assert "searcher" in outcome.bit, outcome
    assert not outcome.verdict.broken, outcome


@pytest.mark.full
def test_many_rounds_keep_the_promise(tmp_path: Path, empty_mlflow: Path, capsys):
    """Every round is played, whatever the one before it found; the seed of each is told."""
    outcomes, broke_off = [], []
    tell(capsys, f"\n{ROUNDS} rounds from HPOSVC_CHAOS_SEED={SEED}")
    try:
        for seed in range(SEED, SEED + ROUNDS):
            home = tmp_path / f"home-{seed}"
            home.mkdir()
            shutil.copy(empty_mlflow, home / "mlflow.db")
            try:
                outcomes.append(play(Terminal(home), plan(seed)))
                tell(capsys, outcomes[-1])
            except Exception as error:  # noqa: BLE001 - the other rounds are to be played
                broke_off.append(seed)
                what = f"{type(error).__name__}: {error}"
                tell(capsys, f"seed {seed}: {plan(seed)}: BROKE OFF: {what}")
            else:
                if not outcomes[-1].verdict.broken:
                    shutil.rmtree(home)
    finally:  # Ctrl-C too ends with what was found so far
        tell(capsys, summary(outcomes, len(broke_off)))
    broken = [outcome.plan.seed for outcome in outcomes if outcome.verdict.broken]
    assert not broken + broke_off, f"see the rounds of these seeds: {broken + broke_off}"


def tell(capsys, what: object) -> None:
    """Say it at once: a long form takes hours."""
    with capsys.disabled():
        sys.stdout.write(f"{what}\n")
        sys.stdout.flush()
