"""If these fail, networks for tables see other columns than they should, or have idle weights."""

import pytest
import torch
from encoding import Layout
from tabular_networks import Embedding, Shape, build, plan

KINDS = ("mlp", "resnet", "ft")
LAYOUTS = (Layout(3, (4, 2)), Layout(3, ()), Layout(0, (4, 2)))


def rows(layout: Layout, count: int = 8) -> torch.Tensor:
    """Return encoded rows in which each code occurs."""
    codes = [torch.arange(count) % kinds for kinds in layout.kinds]
    return torch.cat([torch.randn(count, layout.numbers), *(code[:, None] for code in codes)], 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_network_gives_outputs_and_every_weight_has_a_gradient(kind, layout):
    torch.manual_seed(0)
    model = build(Shape(kind, width=16, dropout=0.0), layout, outputs=5)
    outputs = model(rows(layout))
    assert outputs.shape == (8, 5)
    outputs.square().sum().backward()
    idle = [name for name, weight in model.named_parameters() if not weight.grad.abs().sum() > 0]
    # Attention does not depend on what is added to all keys.
    assert [name for name in idle if not name.endswith("key.bias")] == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_found_depends_on_every_column(kind):
    torch.manual_seed(0)
    layout = LAYOUTS[0]
    model = build(Shape(kind, width=16), layout, outputs=1).eval()
    given = rows(layout)
    for column in range(layout.features):
        changed = given.clone()
        changed[:, column] = given[:, column].roll(1)
        assert not torch.allclose(model(given), model(changed))


def test_dropout_acts_in_training_alone():
    for kind in KINDS:
        model = build(Shape(kind, width=16, dropout=0.5), LAYOUTS[0], outputs=2)
        given = rows(LAYOUTS[0])
        assert not torch.equal(model(given), model(given))
        model.eval()
        assert torch.equal(model(given), model(given))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_codes_are_looked_up_exactly_in_coarse_formats(dtype):
    embedding = Embedding((256, 3), width=4)
    codes_BK = torch.stack([torch.arange(256), torch.arange(256) % 3], dim=1)
    embedded = embedding(codes_BK.to(dtype))
    assert torch.equal(embedded[:, 0], embedding.values[:256])
    assert torch.equal(embedded[:, 1], embedding.values[256 + codes_BK[:, 1]])
    # What no training row has is nothing, until one that is rare teaches more.
    assert embedded[0].abs().sum() == 0


def test_a_tensor_group_splits_all_of_a_block_but_its_norms():
    model = build(Shape("ft", width=16, depth=1), LAYOUTS[0], outputs=1)
    parts = {name.removeprefix("1."): how for name, how in plan(model).items()}
    columns = ("attention.query", "attention.key", "attention.value", "gated.gate", "gated.up")
    assert parts == {
        **dict.fromkeys(columns, "colwise"),
        "attention.output": "rowwise",
        "gated.down": "rowwise",
    }
