"""First in, first out, and nothing is stopped."""

from simulated_sweeps import Flaky, Lab, make_spec


def test_a_sweep_completes_all_trials_though_ranks_are_lost(tmp_path):
    lab = Lab.at(tmp_path)
    spec = make_spec(failure={"infra_retries": 1000})
    state = lab.run(spec, backend=Flaky)
    assert state.trials.counts["COMPLETED"] == len(state.trials) == 12
    assert any(trial.attempts > 1 for trial in state.trials.values())
    for trial in state.trials.values():
        assert [step for step, _ in trial.curve] == list(range(1, 10))
