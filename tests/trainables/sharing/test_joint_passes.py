"""Passes of several trials made as one. If these fail, a trial learns from another's samples or
weights, or takes another along."""

import os

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy, dropout
from tuned import WORDS, Base

from trainables.lora import LoraOptions, adapt
from trainables.sharing.joint_model import EachItsOwn, JointLinear
from trainables.sharing.joint_passes import Backward, Forward, JointModel, JointPasses
from trainables.sharing.own_state import OwnState
from trainables.sharing.shared_base import SharedBase
from trainables.training_state.precision import cast
from trainables.worker import PassLost

UNLIKE = st.fixed_dictionaries(
    {
        "rank": st.sampled_from([1, 2, 5]),
        "alpha": st.sampled_from([1.0, 16.0]),
        "dropout": st.sampled_from([0.0, 0.0, 0.5]),
        "targets": st.sampled_from([("query",), ("query", "value"), ("words", "value"), ("*",)]),
        "whole": st.sampled_from([(), (), ("head",), ("norm", "head")]),
    }
)


@pytest.fixture
def log(tmp_path):
    """The descriptor of a log; the process's own output is restored, which orders redirect."""
    kept = [os.dup(number) for number in (1, 2)]
    with (tmp_path / "log").open("wb+", buffering=0) as file:
        yield file.fileno()
    for number, own in zip((1, 2), kept, strict=True):
        os.dup2(own, number)
        os.close(own)


class Trials:
    """Orders whose models are on one base, and whose passes are made by `make`."""

    def __init__(self, log, models):
        shared, self.passes, self.seen = SharedBase(), JointPasses(), []
        self.models = []
        for seed, model in enumerate(models):
            shared.share(model)
            torch.manual_seed(seed)
            own = OwnState(torch.device("cpu"), log)
            own.leave()
            self.models.append(JointModel(model, own, self.seen.append).train())

    def make(self, asked):
        left = list(asked)
        while left:
            made = self.passes.make(left)
            left = [each for each in left if each not in made]
        return asked

    def forward(self, *inputs):
        wanted = zip(self.models, inputs, strict=True)
        return self.make([Forward(model, (x,), {}) for model, x in wanted])

    def backward(self, losses):
        ones = [(torch.ones_like(loss),) for loss in losses]
        wanted = zip(self.models, losses, ones, strict=True)
        return self.make([Backward(model, (loss,), one) for model, loss, one in wanted])


def adapted(options=None, base=Base):
    """Return a model as it is after some updates: its adapters add something."""
    torch.manual_seed(0)
    model = adapt(base(), LoraOptions(**{"targets": ("query", "value"), **(options or {})}))
    for name, weight in model.named_parameters():
        if "lora_B" in name or ("lora_A" in name and not weight.any()):
            nn.init.normal_(weight, std=0.3)
    return model


def words(rows, seed=0):
    return torch.randint(WORDS, (rows, 6), generator=torch.Generator().manual_seed(seed))


def gradients(model):
    return [weight.grad for weight in model.parameters() if weight.requires_grad]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(UNLIKE, st.integers(1, 5)), min_size=2, max_size=4),
    st.booleans(),
)
def test_outputs_and_gradients_are_those_of_each_trial_alone(log, unlike, equal):
    models = [adapted(options) for options, _ in unlike]
    trials = Trials(log, models)
    sizes = [3 if equal else rows for _, rows in unlike]
    inputs = [words(rows, seed) for seed, rows in enumerate(sizes)]
    asked = trials.forward(*inputs)
    assert [(each.error, each.of.is_amid) for each in asked] == [(None, True)] * len(asked)
    losses = [each.output.square().sum() for each in asked]
    trials.backward(losses)
    found = [[grad.clone() for grad in gradients(model)] for model in models]
    for seed, (model, x) in enumerate(zip(models, inputs, strict=True)):
        model.zero_grad()
        torch.manual_seed(seed)
        output = model(x)
        torch.testing.assert_close(asked[seed].output, output, atol=1e-5, rtol=1e-5)
        output.square().sum().backward()
        torch.testing.assert_close(found[seed], gradients(model), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_a_base_in_16_bits_is_joined(log, precision):
    """Its modules cast their inputs by hooks."""
    models = [
        cast(adapted({"rank": rank, "targets": targets}, base=lambda: Base().bfloat16()), precision)
        for rank, targets in ((2, ("query",)), (5, ("query", "value")))
    ]
    trials, inputs = Trials(log, models), (words(3), words(3, 1))
    mixed = torch.bfloat16 if precision == "bf16-mixed" else None
    wanted = zip(trials.models, inputs, strict=True)
    asked = trials.make([Forward(model, (x,), {}, autocast=mixed) for model, x in wanted])
    kinds = {name: type(module) for name, module in trials.passes._joint.named_children()}
    assert (kinds["query"], kinds["value"], kinds["head"]) == (JointLinear, JointLinear, nn.Linear)
    trials.backward([each.output.float().square().sum() for each in asked])
    for each, model, x in zip(asked, models, inputs, strict=True):
        assert (each.error, each.of.is_apart) == (None, False)
        found = [grad.clone() for grad in gradients(model)]
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed is not None):
            output = model(x)
        torch.testing.assert_close(each.output, output, atol=0.02, rtol=0.02)
        output.float().square().sum().backward()
        for one, other in zip(found, gradients(model), strict=True):
            assert (one - other).norm() <= 0.02 * other.norm()


def test_the_base_computes_once_for_all(log):
    models = [adapted({"rank": 1 + k}) for k in range(3)] + [adapted({"targets": ("query",)})]
    trials = Trials(log, models)
    trials.forward(*[words(2, seed) for seed in range(4)])
    joint = trials.passes._joint
    kinds = {name: type(module) for name, module in joint.named_children()}
    assert kinds == {
        "words": nn.Embedding,
        "query": JointLinear,
        "value": JointLinear,
        "norm": nn.LayerNorm,
        "head": nn.Linear,
    }


def test_a_trial_that_is_not_finite_leaves_the_others_as_they_are(log):
    models = [adapted(), adapted({"rank": 1}), adapted({"rank": 3})]
    with torch.no_grad():
        models[1].query.lora_A.fill_(torch.inf)
    trials = Trials(log, models)
    inputs = [words(3, seed) for seed in range(3)]
    asked = trials.forward(*inputs)
    trials.backward([each.output.square().sum() for each in asked])
    assert not asked[1].output.isfinite().all()
    for place in (0, 2):
        torch.testing.assert_close(asked[place].output, models[place](inputs[place]))
        assert all(grad.isfinite().all() for grad in gradients(models[place]))


class Mixing(Base):
    """A base that looks at all rows together."""

    def forward(self, at):
        output = super().forward(at)
        return output - output.mean(dim=0)


def test_a_model_that_looks_at_other_rows_is_refused(log):
    trials = Trials(log, [adapted(base=Mixing), adapted({"rank": 5}, base=Mixing)])
    for each in trials.forward(words(3), words(3, 1)):
        assert "outputs of Mixing differ from those of the trial alone" in str(each.error)


class Straying(Base):
    """A base that keeps a bound method, which a copy of it would call on the first trial's."""

    def __init__(self):
        super().__init__()
        self.last = self.finish

    def finish(self, x):
        return self.head(x + self.value(x))

    def forward(self, at):
        return self.last(self.words(at).mean(dim=1))


def test_a_model_that_computes_with_anothers_weights_is_refused(log):
    trials = Trials(log, [adapted(base=Straying), adapted({"rank": 5}, base=Straying)])
    first, other = trials.forward(words(3), words(3, 1))
    errors = [str(each.error) for each in (first, other) if each.error]
    assert errors
    assert all("computes with another one's weights" in error for error in errors)


class Summing(Base):
    """A base that returns something without rows."""

    def forward(self, at):
        return {"scores": super().forward(at), "entropy": super().forward(at).sum()}


def test_outputs_that_are_not_of_rows_make_passes_alone(log, tmp_path):
    models = [adapted(base=Summing), adapted({"rank": 5}, base=Summing)]
    trials = Trials(log, models)
    inputs = words(3), words(3, 1)
    for each, model, x in zip(trials.forward(*inputs), models, inputs, strict=True):
        torch.testing.assert_close(each.output, model(x))
        assert each.of.is_apart
    said = (tmp_path / "log").read_text()
    assert "passes are made alone from now on: a tensor of shape () (Tensor)" in said


class Keeping(Base):
    """A base that keeps a value of its forward pass for the loss."""

    def forward(self, at):
        self.kept = super().forward(at).mean()
        return super().forward(at)


class Drawing(Base):
    """A base with dropout that is no module."""

    def forward(self, at):
        return dropout(super().forward(at), 0.5, self.training)


class Coded(Base):
    """A base that also returns a table, whose length is that of so many samples by chance."""

    def forward(self, at):
        return super().forward(at), self.words.weight * 1


@pytest.mark.parametrize(
    ("base", "said"),
    [
        (Keeping, "keeps something of its forward pass"),
        (Drawing, "draws numbers outside"),
        (Coded, ""),
    ],
)
def test_models_that_cannot_be_joined_make_passes_alone(log, tmp_path, base, said):
    models = [adapted(base=base), adapted({"rank": 5}, base=base)]
    trials, inputs = Trials(log, models), (words(4), words(4, 1))
    for seed, (each, x) in enumerate(zip(trials.forward(*inputs), inputs, strict=True)):
        torch.manual_seed(seed)
        torch.testing.assert_close(each.output, models[seed](x))
        assert (each.error, each.of.is_apart, each.of.is_amid) == (None, True, False)
    assert said in (tmp_path / "log").read_text()


def test_a_pass_without_gradient_between_a_pass_and_its_backward_pass(log):
    """As where a loss compares a model with what it was."""
    trials, inputs = Trials(log, [adapted(), adapted({"rank": 5})]), (words(3), words(3, 1))
    outputs = [each.output for each in trials.forward(*inputs)]
    trials.make(
        [Forward(m, (x,), {}, grad=False) for m, x in zip(trials.models, inputs, strict=True)]
    )
    assert [model.is_amid for model in trials.models] == [True, True]
    made = trials.backward([output.sum() for output in outputs])
    assert [each.error for each in made] == [None, None]


def test_adapters_that_are_switched_off_add_nothing(log):
    peft = pytest.importorskip("peft")

    def model(rank):
        torch.manual_seed(0)
        config = peft.LoraConfig(r=rank, target_modules=["query"], init_lora_weights=False)
        return peft.get_peft_model(Base(), config)

    models, inputs = [model(2), model(4)], (words(3), words(3, 1))
    trials = Trials(log, models)
    trials.forward(*inputs)
    trials.forward(*inputs)
    models[0].base_model.disable_adapter_layers()
    first, other = trials.forward(*inputs)  # the third is not checked
    torch.testing.assert_close(first.output, models[0](inputs[0]))
    torch.testing.assert_close(other.output, models[1](inputs[1]))


def test_a_trial_with_bad_samples_raises_alone(log):
    trials = Trials(log, [adapted(), adapted({"rank": 5})])
    good, bad = trials.forward(words(3), words(3) + WORDS)
    assert isinstance(bad.error, IndexError)
    assert good.error is None
    assert not good.of.is_apart  # who raises alone is to blame


class Hungry(Base):
    """A base for which more than four rows are too many."""

    def forward(self, at):
        if len(at) > 4:
            raise torch.OutOfMemoryError(f"{len(at)} rows")
        return super().forward(at)


def test_memory_that_is_short_makes_passes_smaller(log):
    trials = Trials(log, [adapted({"rank": rank}, base=Hungry) for rank in (1, 2, 3, 4)])
    inputs = [words(2, seed) for seed in range(4)]
    assert [each.error for each in trials.forward(*inputs)] == [None] * 4  # each alone
    again = trials.forward(*inputs)
    assert [(each.error, each.of.is_amid) for each in again] == [(None, True)] * 4  # in pairs


def test_a_backward_pass_that_fails_is_to_be_made_again(log):
    models = [adapted(), adapted({"rank": 5})]
    trials = Trials(log, models)
    asked = trials.forward(words(3), words(3, 1))

    def fail(_):
        raise RuntimeError("a hook of this trial")

    asked[1].output.register_hook(fail)
    for each in trials.backward([each.output.sum() for each in asked]):
        assert isinstance(each.error, PassLost)
        assert each.of.is_apart


def test_backward_passes_wait_for_a_trial_that_makes_a_second_forward_pass(log):
    """Its loss compares two passes: the graph of the first is that of the other trial too."""
    models = [adapted(), adapted({"rank": 5})]
    trials = Trials(log, models)
    first, other = trials.forward(words(3), words(3, 1))
    one, two = trials.models
    waiting = [
        Backward(one, (first.output.sum(),), (torch.tensor(1.0),)),
        Forward(two, (words(3),), {}),
    ]
    assert trials.passes.make(waiting) == waiting[1:]
    loss = (other.output - waiting[1].output).square().sum()
    both = [waiting[0], Backward(two, (loss,), (torch.tensor(1.0),))]
    assert trials.passes.make(both) == both
    assert [each.error for each in both] == [None, None]


@pytest.mark.parametrize("kind", ["peft", "own"])
def test_a_model_of_hugging_face_is_joined(log, kind):
    """With peft's adapters and with ours, in the formats of mixed precision."""
    transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
    config = transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=16, use_cache=False,
    )  # fmt: skip

    def model(rank, targets):
        torch.manual_seed(0)
        base = transformers.LlamaForCausalLM(config)
        if kind == "own":
            return adapt(base, LoraOptions(rank, targets=tuple(f"*.{each}" for each in targets)))
        return peft.get_peft_model(
            base, peft.LoraConfig(r=rank, target_modules=list(targets), init_lora_weights=False)
        )

    models = [model(2, ("q_proj", "v_proj")), model(4, ("q_proj", "down_proj"))]
    trials, inputs = Trials(log, models), [words(3, seed) for seed in range(2)]
    asked = trials.forward(*inputs)
    for each, alone, x in zip(asked, models, inputs, strict=True):
        torch.testing.assert_close(each.output.logits, alone(x).logits, atol=1e-5, rtol=1e-4)
    joint = trials.passes._joint
    found = [type(module) for module in joint.modules()]
    assert (found.count(JointLinear), found.count(EachItsOwn)) == (6, 0)
    losses = [
        cross_entropy(each.output.logits.flatten(0, 1), x.flatten(), reduction="sum")
        for each, x in zip(asked, inputs, strict=True)
    ]
    trials.backward(losses)
    assert all(grad is not None for each in models for grad in gradients(each))
