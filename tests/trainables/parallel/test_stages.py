"""Models cut into stages."""

from torch import nn

from trainables.parallel.stages import balance_stages


def test_layers_are_cut_into_runs_of_like_size():
    widths = [(8, 8), (8, 8), (8, 8), (8, 40), (40, 2)]
    model = nn.Sequential(*[layer for width in widths for layer in (nn.Linear(*width), nn.ReLU())])
    assert balance_stages(model, 1) == [[str(at) for at in range(10)]]
    assert balance_stages(model, 2) == [["0", "1", "2", "3", "4", "5"], ["6", "7", "8", "9"]]
    assert [len(run) for run in balance_stages(model, 5)] == [2, 2, 2, 2, 2]
    for weight in model[0].parameters():
        weight.requires_grad = False  # a stage without weights to train has no optimizer
    assert balance_stages(model, 4)[0] == ["0", "1", "2", "3"]
