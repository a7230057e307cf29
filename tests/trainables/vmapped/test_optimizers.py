"""Updates of several trials beside torch's own, one trial at a time. If these fail, sweeps compare
optimizers that nobody else has.

Axes: K trials, P weights.
"""

import pytest
import torch

from trainables.optim.chained import Chained
from trainables.vmapped.optimizers import matching_optimizer
from trainables.vmapped.refusals import Unbatchable

KINDS = {
    "sgd": lambda w, k: torch.optim.SGD([w], lr=0.1 * (k + 1)),
    "momentum": lambda w, k: torch.optim.SGD([w], lr=0.1, momentum=0.3 * k, weight_decay=0.1 * k),
    "nesterov": lambda w, k: torch.optim.SGD([w], lr=0.1, momentum=0.2 + 0.3 * k, nesterov=True),
    "adam": lambda w, k: torch.optim.Adam(
        [w], lr=0.1 * (k + 1), betas=(0.9 - 0.4 * k, 0.99), weight_decay=0.1 * k
    ),
    "adamw": lambda w, k: torch.optim.AdamW(
        [w], lr=0.1, betas=(0.9, 0.999 - 0.3 * k), eps=10.0 ** -(8 - k), weight_decay=0.1 * k
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_twenty_updates_come_to_what_torch_comes_to(kind):
    generator = torch.Generator().manual_seed(0)
    start_KP = torch.randn(3, 7, generator=generator, dtype=torch.float64)
    weights = [row.clone().requires_grad_() for row in start_KP]
    theirs = [KINDS[kind](weight, k) for k, weight in enumerate(weights)]
    ours = matching_optimizer(theirs[0])
    w_KP = start_KP.clone()
    kept = [torch.zeros_like(w_KP) for _ in ours.state_names]
    for number in range(1, 21):
        g_KP = torch.randn(3, 7, generator=generator, dtype=torch.float64)
        rows = [ours.coefficients(their.param_groups[0], number) for their in theirs]
        ours.step(w_KP, g_KP.clone(), kept, torch.tensor(rows, dtype=w_KP.dtype).T[..., None])
        for weight, g_P, optimizer in zip(weights, g_KP, theirs, strict=True):
            weight.grad = g_P
            optimizer.step()
    expected_KP = torch.stack([weight.detach() for weight in weights])
    torch.testing.assert_close(w_KP, expected_KP, rtol=0, atol=1e-14)
    assert (w_KP - start_KP).abs().min() > 1e-4
    for row, (weight, optimizer) in enumerate(zip(weights, theirs, strict=True)):
        held = {name: values[row] for name, values in zip(ours.state_names, kept, strict=True)}
        entry = ours.entry(optimizer.param_groups[0], 20, held)
        expected = {
            name: value for name, value in optimizer.state[weight].items() if value is not None
        }
        assert entry.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(entry[name], value, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda w: torch.optim.RMSprop([w]), "optimizer is RMSprop; .* know SGD, Adam and AdamW"),
        (lambda w: Chained([torch.optim.Rprop([w])]), "optimizer is Rprop; .* know SGD, Adam"),
        (lambda w: torch.optim.AdamW([w], amsgrad=True), "AdamW has amsgrad True"),
        (lambda w: torch.optim.SGD([w], momentum=0.9, dampening=0.1), "SGD has dampening 0.1"),
    ],
)
def test_what_no_update_of_several_does_is_refused(make, said):
    with pytest.raises(Unbatchable, match=said):
        matching_optimizer(make(torch.zeros(1, requires_grad=True)))
