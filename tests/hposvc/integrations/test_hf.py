"""Hugging Face's Trainer in real sweeps, by the lines of docs/how-to/frameworks.md."""

import json
from functools import partial
from pathlib import Path

import framework_sweeps
import numpy as np
import pages
import pytest
import torch
from ruamel.yaml import YAML
from transformers import Trainer, TrainerCallback, TrainingArguments

import hposvc
from hposvc.errors import SpecError

BLOCK = pages.block("how-to/frameworks.md", "TrainingArguments")
TRL = "how-to/recipes/trl.md"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(48, 4)).astype("float32")
ROWS = [{"pixels": x, "labels": float(x.sum())} for x in X]
EPOCHS = 4


class Line(torch.nn.Linear):
    """A linear regression whose dropout draws random numbers."""

    def __init__(self):
        super().__init__(4, 1)

    def forward(self, pixels, labels):
        value = super().forward(torch.nn.functional.dropout(pixels, 0.1, self.training))[:, 0]
        return {"loss": torch.nn.functional.mse_loss(value, labels), "logits": value}


def trainer_of(folder, rate=0.01, callbacks=(), **options):
    torch.manual_seed(0)
    given = {"eval_strategy": "epoch", "num_train_epochs": EPOCHS, "logging_steps": 1, **options}
    arguments = TrainingArguments(
        str(folder), learning_rate=rate, use_cpu=True, disable_tqdm=True, **given
    )
    return Trainer(
        Line(),
        arguments,
        train_dataset=ROWS[:32],
        eval_dataset=ROWS[32:],
        callbacks=[*callbacks, hposvc.hf.Report()],
    )


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """The result of a sweep under ASHA, and the updates of its trials."""
    folder = tmp_path_factory.mktemp("hf")

    def train(rate, count):
        trainer = trainer_of(folder / "out", rate, [counting(count)])
        trainer.train(resume_from_checkpoint=hposvc.hf.checkpoint())
        trainer.evaluate()  # is no step

    return framework_sweeps.swept(folder, "eval_loss", (1e-3, 0.1), train, EPOCHS)


def counting(count):
    """Return a callback that calls the function with the number of each update."""

    class Count(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            count(state.global_step)

    return Count()


@pytest.mark.long
def test_trials_stop_at_rungs_and_go_on_without_repeating_an_update(swept):
    framework_sweeps.check_rungs(*swept, lambda step: range(1, 4 * step + 1))


@pytest.mark.long
def test_the_values_are_those_of_a_training_without_pauses(swept, tmp_path, capsys):
    result, _ = swept
    trial = framework_sweeps.longest(result)
    trainer_of(tmp_path, trial["rate"]).train()  # outside a sweep: printed
    printed, names = capsys.readouterr().err, ("eval_loss",)
    framework_sweeps.check_curves(result, trial["trial"], printed, names, EPOCHS)
    assert np.isfinite(result.curves["loss"]).all()  # of training


@pytest.mark.long
def test_the_checkpoint_is_a_folder_of_the_trainer(swept, tmp_path):
    result, _ = swept
    best = result.best
    state = json.loads((best.checkpoint / "trainer_state.json").read_text())
    assert state["epoch"] >= best.step
    trainer = trainer_of(tmp_path, num_train_epochs=EPOCHS + 1)
    trainer.train(resume_from_checkpoint=str(best.checkpoint))
    assert trainer.state.global_step == 4 * (EPOCHS + 1)


sweep_of = partial(framework_sweeps.sweep, rates=(0.01, 0.1))


@pytest.mark.long
def test_a_failed_training_goes_on_from_its_last_evaluation(tmp_path):
    def train(config):
        fail_once = counting(framework_sweeps.break_once(tmp_path, 10))
        trainer = trainer_of(tmp_path / "out", config["rate"], [fail_once])
        trainer.train(resume_from_checkpoint=hposvc.hf.checkpoint())

    result = sweep_of(train, tmp_path / "home", "eval_loss", failure={"user_retries": 1})
    assert [*result.trials["state"]] == ["COMPLETED"]
    assert [*result.trials["attempts"]] == [2]
    assert [*result.curves["step"]] == [*range(1, EPOCHS + 1)]
    assert [*result.curves["epoch"]] == [*range(1, EPOCHS + 1)]


@pytest.mark.long
def test_several_data_sets_are_one_report_and_the_one_before_training_is_none(tmp_path):
    def train(config):
        trainer = trainer_of(tmp_path / "out", config["rate"], eval_on_start=True)
        trainer.eval_dataset = {"near": ROWS[32:40], "far": ROWS[40:]}
        trainer.train()

    result = sweep_of(train, tmp_path / "home", "eval_far_loss", fidelity={"max": EPOCHS})
    assert [*result.trials["state"]] == ["COMPLETED"]
    assert {"eval_near_loss", "eval_far_loss"} <= {*result.curves.columns}
    assert [*result.curves["epoch"]] == [*range(1, EPOCHS + 1)]


@pytest.mark.full
def test_without_save_the_trainers_own_strategy_decides(tmp_path):
    def train(config):
        trainer = trainer_of(tmp_path / "out", config["rate"], save_strategy="no")
        trainer.remove_callback(hposvc.hf.Report)
        trainer.add_callback(hposvc.hf.Report(save=False))
        trainer.train()
        trainer.save_model(str(tmp_path / "model"))
        assert trainer.args.output_dir == str(tmp_path / "out")

    result = sweep_of(train, tmp_path / "home", "eval_loss")
    assert [*result.curves["step"]] == [*range(1, EPOCHS + 1)]
    assert result.best.checkpoint is None
    assert (tmp_path / "model").exists()


RANKS = """
import json
import os
from pathlib import Path

import torch
from transformers import Trainer, TrainingArguments

import hposvc

ROWS = [{"pixels": torch.full((4,), float(n)), "labels": float(n)} for n in range(32)]


class Line(torch.nn.Linear):
    def forward(self, pixels, labels):
        value = super().forward(pixels)[:, 0]
        return {"loss": torch.nn.functional.mse_loss(value, labels), "logits": value}


def train(config):
    torch.manual_seed(0)
    arguments = TrainingArguments(
        "out", use_cpu=True, disable_tqdm=True, eval_strategy="epoch", num_train_epochs=2,
        per_device_train_batch_size=4, learning_rate=config["rate"]
    )
    trainer = Trainer(Line(4, 1), arguments, train_dataset=ROWS, eval_dataset=ROWS,
                      callbacks=[hposvc.hf.Report()])
    folder = hposvc.hf.checkpoint()
    trainer.train(resume_from_checkpoint=folder)
    rank = os.environ.get("RANK", "0")
    wrapped = type(trainer.model_wrapped).__name__
    said = [wrapped, trainer.args.world_size, trainer.state.global_step, folder is not None]
    Path(f"rank-{rank}.json").write_text(json.dumps(said))
"""


@pytest.mark.full
@pytest.mark.ray
@pytest.mark.parametrize(("workers", "wrapped"), [(1, "Line"), (2, "DistributedDataParallel")])
def test_ranks_train_one_model_and_a_single_one_is_not_wrapped(
    workers, wrapped, tmp_path, home_with_ray, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("ranks.py").write_text(RANKS)
    result = hposvc.Sweep(
        "ranks.py:train",
        metric={"name": "eval_loss", "goal": "minimize"},
        fidelity={"max": 2},
        parameters={"rate": {"values": [1e-3, 1e-2]}},
        scheduler={"type": "asha", "mode": "promote", "eta": 2},
        resources={"workers": workers},
        trials={"max": 2, "parallel": 1},
        tracking={"send_to": []},
    ).run(home_with_ray, progress=False)
    trials = result.trials
    assert "COMPLETED" in {*trials["state"]}, result.record.failures()
    assert max(trials["attempts"]) > 1  # it went on from a rung
    for rank in range(workers):
        said = json.loads(Path(f"rank-{rank}.json").read_text())
        assert said == [wrapped, workers, 2 * 8 // workers, True]
    names = {file.name for file in result.best.checkpoint.iterdir()}
    assert len([name for name in names if name.startswith("rng_state")]) == workers


def space(trial):
    return {"learning_rate": trial.suggest_float("learning_rate", 1e-3, 0.1, log=True)}


def searched(tmp_path, **options):
    trainer = Trainer(
        model_init=Line,
        args=TrainingArguments(
            str(tmp_path / "out"),
            eval_strategy="epoch",
            num_train_epochs=2,
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=ROWS[:32],
        eval_dataset=ROWS[32:],
    )
    before = trainer.args.to_dict()
    given = {"home": tmp_path / "home", "progress": False, "tracking": {"send_to": []}}
    best = hposvc.hf.search(trainer, space, n_trials=3, **given, **options)
    assert trainer.args.to_dict() == before
    assert trainer.hp_search_backend is None
    return best


@pytest.mark.full
def test_a_search_returns_what_the_trainers_own_does(tmp_path):
    best = searched(tmp_path)
    result = best.run_summary
    assert best.run_id == result.best.trial
    assert best.objective == result.best.value == result.best.metrics["eval_loss"]
    assert best.hyperparameters == result.best.params
    assert len({*result.trials["learning_rate"]}) == 3
    assert {*result.trials["step"]} == {2}


def test_a_trainer_that_cannot_begin_anew_is_refused(tmp_path):
    """Trainers of TRL take no model_init: the message must not end with it."""
    with pytest.raises(
        SpecError, match=r"model_init=.*as TRL's, .* function with hposvc.hf.Report"
    ):
        hposvc.hf.search(trainer_of(tmp_path), space)


@pytest.mark.full
def test_the_trainer_of_trl_goes_on_from_its_rungs(tmp_path, monkeypatch):
    monkeypatch.setenv("HPOSVC_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (program,), (text,) = pages.blocks(TRL), pages.blocks(TRL, "yaml")
    names = {}
    exec(compile(program, TRL, "exec"), names)
    spec = {key: value for key, value in YAML(typ="safe").load(text).items() if key != "trainable"}
    quiet = {"engine": "local", "tracking": {"send_to": []}}
    result = hposvc.Sweep(names["train"], **spec, **quiet).run()
    resumed = result.trials[result.trials["attempts"] > 1]
    assert [*resumed["step"]] == [3] * len(resumed)
    assert len(resumed) >= 1
    assert result.best.value > 0.5  # better than to guess
    model = names["GPT2LMHeadModel"].from_pretrained(result.best.checkpoint)
    assert model.config.vocab_size == len(names["tokens"])


@pytest.mark.full
def test_the_block_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("HPOSVC_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(BLOCK, "how-to/frameworks.md", "exec"), names)
    assert names["result"].best.value > 0.5
