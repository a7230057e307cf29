"""Trials at rest are stopped on real ranks too, and what they were best with is on disk."""

import pytest

from hposvc import Sweep

CODE = '''
def train(params, worker):
    """Falls up to step 4 and rises from there; the checkpoint says which step it is of."""
    for step in worker.steps():
        saved = worker.scratch()
        (saved / "step").write_text(str(step))
        worker.report(step, {"loss": abs(step - 4) + params["lr"]}, checkpoint=saved)
'''
ENGINES = [
    pytest.param("local", 1),
    pytest.param("ray", 2, marks=pytest.mark.ray),
]


@pytest.mark.full
@pytest.mark.parametrize(("engine", "workers"), ENGINES)
def test_the_best_checkpoint_of_a_trial_at_rest_is_kept(tmp_path, home_with_ray, engine, workers):
    (tmp_path / "falls_and_rises.py").write_text(CODE)
    result = Sweep(
        trainable=f"{tmp_path / 'falls_and_rises.py'}:train",
        metric={"name": "loss", "goal": "minimize", "select": "best"},
        parameters={"lr": {"min": 0.1, "max": 0.2}},
        fidelity={"max": 500},
        scheduler={"type": "median", "interval": 100, "plateau": {"patience": 3}},
        search="random",
        trials={"max": 2, "parallel": 1},
        resources={"workers": workers, "cpus_per_worker": 0.5},
        engine=engine,
        tracking={"send_to": []},
    ).run(home=home_with_ray, progress=False)
    assert result.state == "COMPLETED"
    assert list(result.trials.state) == ["STOPPED", "STOPPED"]
    assert list(result.trials.reason) == ["plateau", "plateau"]
    # A stop reaches ranks that are ahead: in between, they went on for some reports.
    assert all(7 <= step < 300 for step in result.trials.step)
    assert result.best.step == 4
    assert (result.best.checkpoint / "step").read_text() == "4"
