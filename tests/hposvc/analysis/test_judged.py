"""What the values of a sweep allow to be said, with new runs of its default."""

import pytest
from replicated import Seeded
from simulated_sweeps import Lab, make_spec

from hposvc.analysis.judged import Judged
from hposvc.analysis.verdict import verdict
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal


@pytest.fixture
def judged(tmp_path):
    """A sweep whose default is far worse than the others, and was stopped early."""
    lab = Lab(Journal(Store(f"sqlite:///{tmp_path / 'x.db'}")), tmp_path)
    spec = make_spec(
        scheduler={"type": "asha", "mode": "promote"},
        initial=[{"lr": 0.01}, {"lr": 0.001}, {"lr": 0.0015}, {"lr": 0.0008}, {"lr": 0.0012}],
        baseline={"seeds": 4},
        finalists={"top": 2, "seeds": 4},
        trials={"max": 12, "parallel": 2},
    )
    return Judged(lab.run(spec, backend=Seeded))


def test_a_default_that_was_stopped_is_compared_by_its_new_runs(judged):
    first = judged.state.trials["t0001"]
    assert (first.state, first.id in judged.losses) == ("STOPPED", False)
    assert judged.default is first
    assert judged.default_runs == judged.repeats["t0001"] == judged.runs["t0001"]
    assert len(judged.default_runs) == 4
    assert judged.measured
    assert judged.gain.claimed
    lead = judged.expectations.lead(judged.best.id, "t0001")
    assert lead.low < 1.0 < lead.high  # (log10(0.01) + 3) ** 2, by the curve
    [gain] = [each for each in verdict("s", judged.state).findings if each.topic == "gain"]
    assert gain.level == "good"
    assert "more than noise" in gain.sentence
