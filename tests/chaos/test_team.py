"""A team's sweeps all end right, whatever is killed, and nobody sees what is another project's."""

import os
import random
import sys

import pytest
import services
from team import gathered
from terminal import Terminal

SEED = int(os.environ.get("HPOSVC_CHAOS_SEED", "0")) or random.randrange(1, 10**6)

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(not services.has_postgres(), reason="no Postgres is installed"),
]


@pytest.mark.parametrize(
    ("clients", "sweeps", "rounds"),
    [
        pytest.param(3, 2, 1, marks=[pytest.mark.full, pytest.mark.timeout(900)]),
        pytest.param(20, 5, 8, marks=[pytest.mark.full, pytest.mark.timeout(3 * 3600)]),
    ],
)
def test_every_sweep_of_a_team_ends_right(terminal: Terminal, clients, sweeps, rounds, capsys):
    """Peers lose submissions with their server, or let a killed driver's sweep lie."""
    with gathered(terminal, SEED) as team:
        team.play(clients, sweeps, rounds)
        broken = [*team.broken()]
    with capsys.disabled():
        sys.stdout.write(
            f"\nseed {SEED}: {clients} clients, {len(team.promises)} sweeps, "
            f"killed: {', '.join(team.kills)}\n"
        )
    assert not broken, "\n".join(broken)
    assert team.kills
    assert len(team.promises) == clients * sweeps
