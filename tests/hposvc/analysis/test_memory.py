"""Forecasts against real updates. If they fail, a forecast that says "fits" runs out of memory."""

import code_repository
import pytest
import torch
from measured_tasks import Adapted, Layers, Packed, Words
from simulated_sweeps import spec_of
from tuned import Tuned

from hposvc import spec as specs
from hposvc.analysis.memory import Case, measured, own_memory
from hposvc.errors import OutOfReach, SpecError
from trainables import Training
from trainables.memory_estimation.forecast import Variant, make_forecast

CLOSE = 0.1
BROKEN = """
from trainables.memory_estimation.measuring import TinyTask

class Broken(TinyTask):
    def compute_losses(self, model, batch):
        raise RuntimeError("no loss today")
"""


def measure(task, ranks=1, gpus=0, training=None, **params):
    """Return what is measured for a task of measured_tasks, or of a file."""
    spec = spec_of(
        task if ":" in task else f"measured_tasks:{task}",
        metric={"name": "val/loss", "goal": "minimize"},
        parameters=params or {"batch": 64},
        fidelity={"unit": "epoch", "max": 1},
        trials={"max": 1},
        resources={"workers": ranks, "gpus_per_worker": gpus},
        training=training or {},
    )
    return measured(spec, Case.of(spec))


def forecast_of(task, training, ranks=1, gpu=False):
    return make_forecast(task, task.load_data(), Variant("", training, ranks), gpu=gpu).peak


@pytest.mark.parametrize(
    ("strategy", "task"),
    [
        pytest.param("single", Layers(), marks=pytest.mark.long),
        pytest.param("ddp", Words(), marks=pytest.mark.full),
        pytest.param("fsdp", Layers(), marks=pytest.mark.full),
        pytest.param("single", Words(), marks=pytest.mark.full),
        pytest.param("ddp", Layers(), marks=pytest.mark.full),
        pytest.param("fsdp", Words(), marks=pytest.mark.full),
        pytest.param("zero1", Layers(), marks=pytest.mark.full),
        pytest.param("zero1", Words(), marks=pytest.mark.full),
        pytest.param("fsdp", Adapted(), marks=pytest.mark.long),
        pytest.param("single", Adapted(), marks=pytest.mark.full),
        pytest.param("ddp", Adapted(), marks=pytest.mark.full),
        pytest.param("ddp", Packed(), marks=pytest.mark.full),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_forecast_is_within_a_tenth_of_what_updates_take(strategy, task):
    ranks, options = 1 if strategy == "single" else 2, {"strategy": strategy}
    taken = measure(type(task).__name__, ranks, training=options, batch=task.batch)
    assert forecast_of(task, Training(**options), ranks) == pytest.approx(taken, rel=CLOSE)


@pytest.mark.full
def test_a_forecast_of_trials_at_once_is_within_a_tenth_of_what_their_updates_take():
    sizes, options = {"width": 512, "layers": 8, "batch": 64}, {"trials_per_process": 8}
    taken = measure("Layers", training=options, **sizes)
    assert forecast_of(Layers(**sizes), Training(**options)) == pytest.approx(taken, rel=CLOSE)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("task", [Layers(), Words()], ids=lambda task: type(task).__name__)
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_forecast_is_within_a_tenth_of_what_a_gpu_gave(task, precision):
    options = {"precision": precision}
    taken = measure(type(task).__name__, gpus=1, training=options, batch=task.batch)
    forecast = forecast_of(task, Training(**options), gpu=True)
    assert forecast == pytest.approx(taken, rel=CLOSE)


@pytest.mark.full
def test_a_rank_that_says_much_and_fails_is_the_one_that_is_named():
    with pytest.raises(SpecError, match=r"^rank 1 of 2: RuntimeError: enough said"):
        measure("Talking", 2, training={"strategy": "ddp"}, layers=2, width=64)


@pytest.mark.long
def test_a_process_with_a_task_of_a_file_that_breaks_off_says_why(tmp_path):
    (tmp_path / "broken.py").write_text(BROKEN)
    with pytest.raises(SpecError, match="no loss today"):
        measure(f"{tmp_path / 'broken.py'}:Broken")


def test_a_machine_with_too_few_gpus_says_so(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(OutOfReach, match="gpus_per_worker is 2 for 1 ranks"):
        measure("Layers", gpus=2)


def test_nothing_is_forecast_of_code_that_is_a_parameter(tmp_path):
    spec = specs.load(code_repository.spec(code_repository.make(tmp_path / "repository")))
    with pytest.raises(SpecError, match=r"parameters.code.variants: chooses the code, and model"):
        Case.of(spec)
    assert own_memory(spec) is None


def test_a_checkpoint_is_that_of_one_trial_of_a_process():
    sections = {
        "trainable": "tuned:Tuned",
        "metric": {"name": "val/loss", "goal": "minimize"},
        "fidelity": {"max": 2},
        "parameters": {"lr": {"min": 1e-3, "max": 1e-1, "log": True}, "width": 512},
        "trials": {"max": 8},
    }
    sizes = {}
    for option in ("share_base", "trials_per_process"):
        for trials in (2, 8):
            spec = specs.load({**sections, "training": {option: trials}})
            sizes[option, trials] = own_memory(spec).checkpoint
    model = Tuned(width=512).build_model()
    weights = sum(each.numel() for each in model.parameters() if each.requires_grad)
    for size in sizes.values():
        assert size == pytest.approx(3 * 4 * weights, rel=CLOSE)  # with two moments
