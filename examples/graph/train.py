"""A graph convolutional network in plain torch: digits told apart by those that look like them.

Each of scikit-learn's 1,797 digits is a node, joined with its nearest neighbours; the network sees
all pictures, and the labels of 50. The rest of the labels is held out: half of them for the
metric, half for a test. Source: Kipf & Welling, Semi-Supervised Classification with Graph
Convolutional Networks (2017), equations 2 and 9.

Axes: N nodes, F pixels, C classes.
"""

import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout

from trainables.worker import Params, Worker

LABELLED, UPDATES = 5, 10  # digits of each class; updates of an epoch


class GraphNetwork(nn.Module):
    """Layers that mix each node's features with its neighbours', then change them."""

    def __init__(self, pixels: int, width: int, layers: int, classes: int, rate: float) -> None:
        super().__init__()
        widths = [pixels, *[width] * (layers - 1), classes]
        self.layers = nn.ModuleList(map(nn.Linear, widths, widths[1:]))
        self.rate = rate

    def forward(self, x_NF: Tensor, mixing_NN: Tensor) -> Tensor:
        """Return the scores of the classes (N, C)."""
        for layer in self.layers[:-1]:
            x_NF = dropout(x_NF, self.rate, self.training)
            x_NF = torch.relu(mixing_NN @ layer(x_NF))
        scores: Tensor = mixing_NN @ self.layers[-1](dropout(x_NF, self.rate, self.training))
        return scores


def train(params: Params, worker: Worker) -> None:
    """Report val/accuracy, by which the sweep chooses, and test/accuracy."""
    torch.set_num_threads(1)
    torch.manual_seed(worker.seed)
    pixels, labels = load_digits(return_X_y=True)
    x_NF, label_N = torch.tensor(pixels / 16).float(), torch.tensor(labels)
    mixing_NN = neighbours(x_NF, params["neighbours"])
    known_N, val_N, test_N = split(label_N)
    model = GraphNetwork(64, params["width"], params["layers"], 10, params["dropout"])
    decay = params["weight_decay"]
    optimizer = torch.optim.Adam(model.parameters(), lr=params["lr"], weight_decay=decay)
    for epoch in worker.steps():
        model.train()
        for _ in range(UPDATES):
            optimizer.zero_grad()
            cross_entropy(model(x_NF, mixing_NN)[known_N], label_N[known_N]).backward()
            optimizer.step()
        with torch.no_grad():
            right_N = (model.eval()(x_NF, mixing_NN).argmax(1) == label_N).float()
        right = {"val/accuracy": right_N[val_N], "test/accuracy": right_N[test_N]}
        worker.report(epoch, {name: float(each_N.mean()) for name, each_N in right.items()})


def neighbours(x_NF: Tensor, count: int) -> Tensor:
    """Return the sparse matrix by which nodes are mixed: rows and columns divided by degrees."""
    edges_NN = kneighbors_graph(x_NF, count, include_self=True).toarray()
    joined_NN = torch.tensor(edges_NN).maximum(torch.tensor(edges_NN).T).float()
    scale_N = joined_NN.sum(1).rsqrt()
    return (scale_N[:, None] * joined_NN * scale_N).to_sparse()


def split(label_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the nodes with known labels, those for the metric, and those for the test."""
    order_N = torch.randperm(len(label_N), generator=torch.Generator().manual_seed(0))
    known = torch.cat([order_N[label_N[order_N] == kind][:LABELLED] for kind in range(10)])
    rest = order_N[~torch.isin(order_N, known)]
    return known, rest[: len(rest) // 2], rest[len(rest) // 2 :]
