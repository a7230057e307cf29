"""What OpenEvolve asks of an evaluator, answered by trials of a sweep; OpenEvolve is not needed."""

import code_repository
import openevolve_evaluator
import pytest

from hposvc import api


@pytest.fixture
def evaluate(tmp_path, monkeypatch):
    """The evaluator, for programs in the place of level.py."""
    repository = code_repository.make(tmp_path / "repository")
    monkeypatch.setenv("HPOSVC_HOME", f"{tmp_path / 'home'}")
    monkeypatch.setenv("HPOSVC_SWEEP", "s")
    monkeypatch.setenv("PROGRAM", "level.py")
    spec = code_repository.spec(repository, engine="local", trials={"max": 1, "proposed": 1.0})
    spec["parameters"]["code"] = {"variants": ["main"]}
    sweeps = api.Sweeps.open()
    api.drive(sweeps, api.create(sweeps, api.validate({**spec, "initial": [{"x": 0.5}]}, {}), "s"))
    return openevolve_evaluator.evaluate


@pytest.mark.long
def test_a_program_is_trained_once_and_its_score_grows_as_the_loss_falls(evaluate, tmp_path):
    program = tmp_path / "program.py"
    for level in (7, 7, 3):
        program.write_text(f"LEVEL = {level}\n")
        assert evaluate(f"{program}") == {"loss": level + 0.5, "combined_score": -level - 0.5}
    program.write_text("LEVEL = 10\n")
    assert evaluate(f"{program}")["loss"] == 10.5, "the first version, as nothing is changed"
    state = api.load(api.Sweeps.open(), "s").state
    assert [trial.value for trial in state.trials.values()] == [10.5, 7.5, 3.5]
    program.write_text("LEVEL = nothing\n")
    with pytest.raises(RuntimeError, match=r"t0004 of s failed: user"):
        evaluate(f"{program}")
