"""A strategy of one file and one row is known to all that must know of it.

If these fail, a new strategy is forgotten somewhere: checkpoints of ranks that hold parts of a
model are written by one of them, or options that it cannot obey are accepted.
"""

import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from pkgutil import resolve_name

import pytest
import torch
from forecasts import Wide, found
from several_optimizers import Forging
from tasks import Deep, curve, learned
from tolerances import CLOSE

from trainables import Training, Worker
from trainables.checkpoints.saver import Saver
from trainables.combinations import check, refusals
from trainables.memory_estimation.forecast import micro_batch, variants
from trainables.parallel.strategy import choose
from trainables.strategies import STRATEGIES
from trainables.trainer.fit import prepare

ROOT = Path(__file__).parents[2]
MIRROR = '''
from dataclasses import dataclass

from trainables.strategies import STRATEGIES, Refusal, StrategyType

STRATEGIES["mirror"] = StrategyType(
    "mirror:Mirror",
    options={"compile": STRATEGIES["single"].options["compile"]},
    refusals=(Refusal("ema", "a mirror shows no past; leave it out"),),
    no_rollback="a mirror shows no past; set it to stop",
    unsuited_optimizers=("turns",),
)

from trainables.parallel.averaging import average
from trainables.parallel.strategy import Group


@dataclass(frozen=True)
class Mirror(Group):
    """A copy of the model on every rank, whose gradients are averaged in one message."""

    def end_update(self, model, careful, failure):
        average([weight.grad for weight in model.parameters() if weight.grad is not None])
'''
OUTSIDE = """
import mirror  # before all else, as a row of the file would be
from techniques import PAGES, section
from hposvc import spec
from hposvc.spec.json_schema import build, find
document = {"metric": {"name": "loss", "goal": "minimize"}, "trials": {"max": 1}}
document |= {"trainable": "trainables.zoo.digits:DigitsCNN"}
document |= {"parameters": {"lr": {"min": 0.1, "max": 0.2}}}
document |= {"resources": {"workers": 2}, "training": {"strategy": "mirror"}}
print(spec.load(document).training.strategy)
print("mirror" in find(build({}), "training.strategy")["enum"])
print(section(PAGES["advanced/strategies.md"]))
"""


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """Import a strategy and its row from a file outside of the packages."""
    (tmp_path / "mirror.py").write_text(MIRROR)
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__("mirror")
    del STRATEGIES["mirror"], sys.modules["mirror"]


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_row_names_options_that_exist_and_ways_that_are_accepted(name):
    strategy, options = STRATEGIES[name], {field.name for field in fields(Training)}
    assert options.issuperset(strategy.options)
    assert options.issuperset(refusal.option for refusal in strategy.refusals)
    for way in strategy.ways.values():
        assert not [*refusals(Training(**{"strategy": name, **way}), 1 + strategy.several_ranks)]
    assert name == "deepspeed" or resolve_name(strategy.strategy_class)
    assert not strategy.memory_formula or callable(resolve_name(strategy.memory_formula))


def test_options_that_a_new_strategy_cannot_obey_are_refused(mirror):
    check(Training("mirror", compile="aot_eager"), 2, "stop")
    with pytest.raises(ValueError, match="mirror") as refusal:
        check(Training("mirror", ema=0.9, static_graph=True), 2, "rollback")
    static_graph, ema, nan = str(refusal.value).splitlines()
    assert static_graph.endswith("set strategy to ddp or zero1, or leave static_graph out")
    assert ema == "training.ema is 0.9, but a mirror shows no past; leave it out"
    assert nan == "failure.nan is rollback, but a mirror shows no past; set it to stop"
    [(_, reason)] = refusals(Training("pipeline", compile="aot_eager", accumulate=2), 2)
    assert reason.endswith("ddp or zero1 or fsdp or local_sgd or mirror, or leave compile out")


def test_a_new_strategys_memory_is_forecast_and_compared(mirror):
    single, forecast = found(Wide(), Training()), found(Wide(), Training("mirror"), 4)
    assert (forecast.parameters, forecast.optimizer) == (single.parameters, single.optimizer)
    assert forecast.activations == pytest.approx(single.activations / 4, rel=0.01)
    assert micro_batch(64, Training("mirror"), 4) == 16
    assert "mirror" in [way.name for way in variants(Training(), 2)]


def states_and_reports(rank, folder):
    """Return what one step of a new strategy leaves on this rank: checkpoint, weights, reports."""
    __import__("mirror")
    options = Training("mirror", "64-true")
    worker = replace(
        Worker.alone(until=1, folder=folder, training=options), rank=rank, world_size=2
    )
    strategy = choose(worker)
    with pytest.raises(ValueError, match=r"takes turns; choose single or ddp or zero1$"):
        Forging().train(worker)
    with prepare(Deep(), worker) as trainer:
        trainer.run()
        weights = [weight.detach().clone() for weight in trainer.state.model.parameters()]
    saved = worker.reports[-1].checkpoint
    return type(strategy).__name__, Saver(strategy)._is_sharded, saved, weights, curve(worker)


def test_a_new_strategy_trains_and_is_saved_by_rank_0(mirror, on_two_ranks, tmp_path):
    (name, sharded, saved, first, reports), other = on_two_ranks(states_and_reports, tmp_path)
    assert (name, sharded, other[:3]) == ("Mirror", False, ("Mirror", False, None))
    assert all(map(torch.equal, first, other[3]))
    alone = learned(Deep(), Training(precision="64-true"), until=1)
    for report, expected in zip(reports, alone, strict=True):
        assert report["train/loss"] == pytest.approx(expected["train/loss"], abs=CLOSE["64-true"])
        assert report["val/loss"] == pytest.approx(expected["val/loss"], abs=CLOSE["64-true"])
    with prepare(Deep(), replace(Worker.alone(training=Training("mirror")), start=saved)) as again:
        weights = again.state.model.parameters()
        assert all(
            torch.allclose(one.double(), here.double())
            for one, here in zip(first, weights, strict=True)
        )


def test_a_new_strategy_is_a_word_of_a_spec_and_a_row_of_the_pages(mirror):
    paths = [str(Path(mirror.__file__).parent), str(ROOT / "docs"), str(ROOT)]
    program = f"import sys; sys.path[:0] = {paths}\n{OUTSIDE}"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    word, in_schema, *table = ended.stdout.splitlines()
    assert (word, in_schema) == ("mirror", "True")
    [row] = [row for row in table if row.startswith("| `mirror` |")]
    assert row == "| `mirror` | `float32_modules`, `ema` |"
