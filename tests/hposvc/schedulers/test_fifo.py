"""First in, first out, and nothing is stopped."""

from simulated_sweeps import Flaky, Lab, make_spec

from hposvc.journal.database import Store
from hposvc.journal.journal import Journal
from hposvc.schedulers.fifo import Fifo
from hposvc.schedulers.scheduler import (
    Closed,
    Left,
    NewTrial,
    Ordered,
    Plan,
    Report,
    SearchDone,
    Wait,
)


def test_every_trial_runs_to_its_end_without_milestones():
    queue = Fifo().scheduler(Plan(1, 9))
    assert queue.next() == NewTrial(9)
    assert queue.judge(Report("t0001", 9, float("inf"))).verdict == "continue"


def test_it_waits_for_what_runs_and_is_over_then():
    queue = Fifo().scheduler(Plan(1, 9))
    queue.apply(Ordered("t0001", 9))
    queue.apply(Closed())
    assert queue.next() == Wait()
    queue.apply(Left("t0001"))
    assert queue.next() == SearchDone()


def test_a_sweep_completes_all_trials_though_ranks_are_lost(tmp_path):
    lab = Lab(Journal(Store(f"sqlite:///{tmp_path / 'x.db'}")), tmp_path)
    spec = make_spec(failure={"infra_retries": 1000})
    state = lab.run(spec, backend=Flaky)
    assert state.trials.counts["COMPLETED"] == len(state.trials) == 12
    assert any(trial.attempts > 1 for trial in state.trials.values())
    for trial in state.trials.values():
        assert [step for step, _ in trial.curve] == list(range(1, 10))
