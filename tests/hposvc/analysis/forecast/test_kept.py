"""A plan in the home, and how good it was once its sweep has ended."""

import pytest
from simulated_sweeps import make_spec

from hposvc import spec as specs
from hposvc.analysis.forecast import kept
from hposvc.journal.home import Home
from hposvc.journal.journal import SweepRow

PLAN = {
    "trials": {"expected": 12.0, "low": 12.0, "high": 12.0, "confidence": 0.9},
    "steps": {"expected": 108.0, "low": 100.0, "high": 110.0},  # as earlier versions kept it
    "gpu_hours": None,
    "cpu_hours": {"expected": 0.03, "low": 0.02, "high": 0.04, "confidence": 0.9},
    "wall_s": {"expected": 10.0, "low": 8.0, "high": 12.0, "confidence": 0.9},
    "source": {"origin": "pilot"},
}


@pytest.fixture
def ended(lab):
    """Return the row and the state of a sweep that ended."""
    spec = make_spec()
    state = lab.run(spec)
    return SweepRow("s", "s", "p", 1000.0, specs.dump(spec), {}), state


def test_a_plan_is_compared_with_what_its_sweep_came_to(tmp_path, ended):
    row, state = ended
    home = Home.of(tmp_path)
    kept.keep(home, make_spec(name="another"), PLAN, now=900.0)
    found = kept.accuracy(home, row, state)
    assert found.source == "pilot"
    assert found.figures["steps"].came_to == 108
    assert found.figures["cpu_hours"].held
    assert not found.figures["wall_s"].held
    assert "gpu_hours" not in found.figures
    text = kept.sentence(found)
    assert text.startswith("CPU-hours: forecast 0.03 (0.02 to 0.04), came to 0.030")
    assert text.endswith("outside its interval")
    assert found.figures["steps"].held


def test_the_last_plan_before_the_sweep_counts(tmp_path, ended):
    row, _ = ended
    home = Home.of(tmp_path)
    for made, low in ((100.0, 1.0), (500.0, 2.0), (2000.0, 3.0)):
        wall_s = {"expected": 9.0, "low": low, "high": 9.0, "confidence": 0.9}
        kept.keep(home, make_spec(), {**PLAN, "wall_s": wall_s}, now=made)
    assert kept.find(home, row)["wall_s"]["low"] == 2.0


def test_a_plan_counts_whatever_the_price_unless_money_ends_the_sweep():
    def prints(**sections):
        specs_of_prices = (make_spec(price={"worker_hour": price}, **sections) for price in (1, 2))
        return {kept.fingerprint(specs.dump(spec)) for spec in specs_of_prices}

    assert len(prints()) == 1
    assert len(prints(budget={"cost": 50})) == 2
