"""Small networks in torch: perceptrons, convolutions, language models, and adapters of rank r.

Each is trained by one loop, `fit`, with the options that people tune: the optimizer, the schedule
with its warm-up, weight decay, clipping. A loss is the mean over two splits.

Axes: B rows of a batch, T letters, D width, H height and width of an image.
"""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from prior.data_sets import Array, images_of, rows_of, text_of
from prior.estimators import WORST, bounded, folds_of, is_regression
from prior.spaces import Number, Options, Parameter, Params

SPLITS = 2
MAX_STEPS = 1500  # of a training, where batches are small and epochs many
BatchLoss = Callable[[Tensor], Tensor]  # of the rows with these indices
ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU, "silu": nn.SiLU}


def factor(step: int, steps: int, params: Params) -> float:
    """Return the share of the learning rate at a step: it rises, then it falls by the schedule."""
    warm = params["warmup"] * steps
    if step < warm:
        return float((step + 1) / (warm + 1))
    done = (step - warm) / max(steps - warm, 1)
    match params["schedule"]:
        case "cosine":
            return 0.5 * (1 + math.cos(math.pi * done))
        case "linear":
            return 1 - done
        case "step":
            return float(0.1 ** (int(done > 0.5) + int(done > 0.75)))
        case _:
            return 1.0


def optimizer_of(network: nn.Module, params: Params) -> torch.optim.Optimizer:
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    if params["optimizer"] == "sgd":
        return torch.optim.SGD(
            weights,
            params["lr"],
            params["momentum"],
            weight_decay=params["weight_decay"],
            nesterov=params["nesterov"] and params["momentum"] > 0,
            fused=True,
        )
    betas = (params["beta1"], params["beta2"])
    kind = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[params["optimizer"]]
    return kind(weights, params["lr"], betas, params["eps"], params["weight_decay"], fused=True)


def fit(network: nn.Module, batch_loss: BatchLoss, rows: int, steps: int, params: Params) -> bool:
    """Train the network; False: its loss is no number any more."""
    optimizer = optimizer_of(network, params)
    size = min(params["batch"], rows)
    order, place = torch.randperm(rows), 0
    network.train()
    for step in range(steps):
        if place + size > rows:
            order, place = torch.randperm(rows), 0
        loss = batch_loss(order[place : place + size])
        place += size
        if step % 20 == 0 and not math.isfinite(loss.item()):
            return False
        optimizer.zero_grad()
        loss.backward()
        if params["clip"] is not None:
            nn.utils.clip_grad_norm_(network.parameters(), params["clip"])
        for group in optimizer.param_groups:
            group["lr"] = params["lr"] * factor(step, steps, params)
        optimizer.step()
    network.eval()
    return True


def steps_of(rows: int, params: Params) -> int:
    return min(MAX_STEPS, params["epochs"] * math.ceil(rows / params["batch"]))


def criterion(numbers: bool, params: Params) -> Callable[[Tensor, Tensor], Tensor]:
    if numbers:
        return lambda out, y: F.mse_loss(out[:, 0], y)
    return partial(F.cross_entropy, label_smoothing=params["label_smoothing"])


def held_loss(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the log loss, or the root of the mean squared error where y are numbers."""
    with torch.no_grad():
        out = network(x)
        if y.is_floating_point():
            return float(F.mse_loss(out[:, 0].clamp(-1e3, 1e3), y).sqrt())
        chances = F.softmax(out, dim=1).clamp(1e-6, 1.0)
        return float(F.nll_loss((chances / chances.sum(dim=1, keepdim=True)).log(), y))


def held_errors(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of wrong classes, each class counted alike."""
    with torch.no_grad():
        wrong = (network(x).argmax(dim=1) != y).double()
    return float(torch.stack([wrong[y == label].mean() for label in y.unique()]).mean())


Judge = Callable[[nn.Module, Tensor, Tensor], float]  # of a network on rows left out
Build = Callable[[Params, tuple[int, ...], int], nn.Module]  # shape of a row, outputs


def rows_loss(
    build: Build, are_images: bool, params: Params, data: str, judge: Judge = held_loss
) -> float:
    """Return the mean loss of two splits of a data set."""
    x, y = images_of(data) if are_images else rows_of(data)
    return bounded(
        [
            split_loss(build, judge, params, x, y, *fold)
            for fold, _ in zip(folds_of(x, y), range(SPLITS), strict=False)
        ]
    )


def split_loss(
    build: Build, judge: Judge, params: Params, x: Array, y: Array, fitted: Array, held: Array
) -> float:
    torch.manual_seed(0)
    if x.ndim == 2:
        x = (x - x[fitted].mean(axis=0)) / (x[fitted].std(axis=0) + 1e-6)
        x = np.clip(x, -10, 10)
    xs = torch.tensor(x, dtype=torch.float32)
    ys = torch.tensor(y, dtype=torch.float32 if is_regression(y) else torch.int64)
    outputs = 1 if is_regression(y) else int(y.max()) + 1
    network = build(params, tuple(xs.shape[1:]), outputs)
    error = criterion(is_regression(y), params)
    x_fitted, y_fitted = xs[fitted], ys[fitted]

    def batch_loss(index: Tensor) -> Tensor:
        return error(network(x_fitted[index]), y_fitted[index])

    if not fit(network, batch_loss, len(fitted), steps_of(len(fitted), params), params):
        return WORST
    return judge(network, xs[held], ys[held])


def perceptron(params: Params, shape: tuple[int, ...], outputs: int) -> nn.Module:
    layers: list[nn.Module] = []
    width = shape[0]
    for _ in range(params["layers"]):
        layers += [nn.Linear(width, params["width"]), ACTIVATIONS[params["activation"]]()]
        if params["dropout"] > 0:
            layers.append(nn.Dropout(params["dropout"]))
        width = params["width"]
    return nn.Sequential(*layers, nn.Linear(width, outputs))


def convolutions(params: Params, shape: tuple[int, ...], outputs: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Unflatten(1, (1, shape[0]))]
    channels, size = 1, params["kernel"]
    for layer in range(params["layers"]):
        width = params["width"] * 2**layer
        layers.append(nn.Conv2d(channels, width, size, padding=size // 2))
        if params["norm"] == "batch":
            layers.append(nn.BatchNorm2d(width))
        layers.append(ACTIVATIONS[params["activation"]]())
        layers.append(nn.MaxPool2d(2))
        channels = width
    side = shape[0] // 2 ** params["layers"]
    layers += [nn.Flatten(), nn.Dropout(params["dropout"])]
    return nn.Sequential(*layers, nn.Linear(channels * side * side, outputs))


class Block(nn.Module):
    """A layer of a transformer, normalized first."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BTD: Tensor) -> Tensor:
        batch, letters, width = x_BTD.shape
        parts = self.mix(self.norm1(x_BTD)).view(batch, letters, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        mixed = mixed.transpose(1, 2).reshape(batch, letters, width)
        x_BTD = x_BTD + self.dropout(self.join(mixed))
        return x_BTD + self.dropout(self.down(F.gelu(self.up(self.norm2(x_BTD)))))


class Language(nn.Module):
    """Predicts each letter of a text from those before it."""

    def __init__(self, width: int, layers: int, heads: int, context: int, dropout: float) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(48, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 48)
        for weight in (self.letters.weight, self.places.weight):
            nn.init.normal_(weight, std=0.1)

    def forward(self, text_BT: Tensor) -> Tensor:
        x_BTD = self.letters(text_BT) + self.places.weight[: text_BT.shape[1]]
        logits: Tensor = self.out(self.norm(self.blocks(x_BTD)))
        return logits.transpose(1, 2)


HELD_LETTERS = 64 * 64


def text_splits(data: str) -> list[tuple[Tensor, Tensor]]:
    """The text without a stretch of it, and the stretch, twice."""
    text = torch.tensor(text_of(data))
    starts = (len(text) // 3, 2 * len(text) // 3)
    return [
        (
            torch.cat([text[:start], text[start + HELD_LETTERS :]]),
            text[start : start + HELD_LETTERS],
        )
        for start in starts
    ]


def train_text(network: nn.Module, text: Tensor, held: Tensor, params: Params) -> float:
    """Return the loss in nats for a letter, after training for `steps` batches."""
    context = params["context"]
    places = torch.arange(context + 1)

    def batch_loss(index: Tensor) -> Tensor:
        piece = text[index[:, None] + places]
        smoothing = params["label_smoothing"]
        return F.cross_entropy(network(piece[:, :-1]), piece[:, 1:], label_smoothing=smoothing)

    if not fit(network, batch_loss, len(text) - context, params["steps"], params):
        return WORST
    pieces = held[: len(held) // context * context].view(-1, context)
    with torch.no_grad():
        return float(F.cross_entropy(network(pieces[:, :-1]), pieces[:, 1:]))


def text_loss(params: Params, data: str) -> float:
    losses = []
    for text, held in text_splits(data):
        torch.manual_seed(0)
        network = Language(
            params["width"],
            params["layers"],
            params["heads"],
            params["context"],
            params["dropout"],
        )
        losses.append(train_text(network, text, held, params))
    return bounded(losses)


class Adapter(nn.Module):
    """A frozen layer plus a product of rank r, scaled by alpha / r.

    Source: Hu et al., LoRA: Low-Rank Adaptation of Large Language Models (2021), section 4.1.
    """

    def __init__(self, base: nn.Linear, params: Params) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        rank = params["rank"]
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)
        self.dropout = nn.Dropout(params["dropout"])
        self.scale = params["alpha"] / rank

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.base(x) + self.scale * self.up(self.down(self.dropout(x)))
        return out


def adapt(network: nn.Module, params: Params, names: tuple[str, ...]) -> nn.Module:
    """Freeze the network, and give an adapter to each linear layer with one of these names."""
    network.requires_grad_(False)
    for path, layer in list(network.named_modules()):
        if isinstance(layer, nn.Linear) and path.split(".")[-1] in names:
            parent = network.get_submodule(path.rpartition(".")[0])
            setattr(parent, path.split(".")[-1], Adapter(layer, params))
    return network


BEFORE: Params = {
    "optimizer": "adamw", "lr": 3e-3, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "clip": None,
    "weight_decay": 0.01, "warmup": 0.1, "schedule": "cosine", "batch": 32, "dropout": 0.0,
    "label_smoothing": 0.0, "width": 64, "layers": 2, "heads": 4, "context": 32, "steps": 700,
    "epochs": 30, "activation": "relu",
}  # fmt: skip


@cache
def pretrained_text(data: str) -> dict[str, Any]:
    """Weights of a language model after another text: nouns' glosses, or for them Python's help."""
    torch.manual_seed(0)
    network = Language(64, 2, 4, 32, 0.0)
    text = torch.tensor(text_of("python_help" if data in ("nouns", "verbs") else "nouns"))
    train_text(network, text, text[:HELD_LETTERS], BEFORE)
    return network.state_dict()


def adapted_text_loss(params: Params, data: str) -> float:
    names = {"attention": ("mix", "join"), "mlp": ("up", "down")}
    targets = names.get(params["targets"], names["attention"] + names["mlp"])
    losses = []
    for text, held in text_splits(data):
        network = Language(64, 2, 4, 32, 0.0)
        network.load_state_dict(pretrained_text(data))
        torch.manual_seed(0)
        adapt(network, params, targets)
        losses.append(train_text(network, text[:8000], held, {**params, "context": 32}))
    return bounded(losses)


@cache
def pretrained_images(data: str) -> dict[str, Any]:
    """Weights of a perceptron that tells the first half of the classes."""
    x, y = (torch.tensor(one) for one in images_of(data))
    few = y < (int(y.max()) + 1) // 2
    x, y = x[few].flatten(1).float(), y[few]
    torch.manual_seed(0)
    network = perceptron(BEFORE, (x.shape[1],), int(y.max()) + 1)

    def batch_loss(index: Tensor) -> Tensor:
        return F.cross_entropy(network(x[index]), y[index])

    fit(network, batch_loss, len(x), steps_of(len(x), BEFORE), BEFORE)
    weights = network.state_dict()
    return {name: weight for name, weight in weights.items() if not name.startswith("4.")}


def adapted_images_loss(params: Params, data: str) -> float:
    """Return the loss on the other half of the classes, of which the adapters see two thirds."""
    x, y = images_of(data)
    half = (int(y.max()) + 1) // 2
    x, y = x[y >= half].reshape((y >= half).sum(), -1), y[y >= half] - half
    return bounded(
        [
            _adapted_split(params, data, x, y, *fold)
            for fold, _ in zip(folds_of(x, y), range(SPLITS), strict=False)
        ]
    )


def _adapted_split(
    params: Params, data: str, x: Array, y: Array, fitted: Array, held: Array
) -> float:
    torch.manual_seed(0)
    xs, ys = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
    network = perceptron(BEFORE, (x.shape[1],), int(y.max()) + 1)
    network.load_state_dict(pretrained_images(data), strict=False)
    nn.init.zeros_(network[4].weight)  # type: ignore[index]
    names = {"attention": ("2", "4"), "mlp": ("0", "4")}.get(params["targets"], ("0", "2", "4"))
    adapt(network, params, names)
    x_fitted, y_fitted = xs[fitted], ys[fitted]

    def batch_loss(index: Tensor) -> Tensor:
        smoothing = params["label_smoothing"]
        return F.cross_entropy(network(x_fitted[index]), y_fitted[index], label_smoothing=smoothing)

    if not fit(network, batch_loss, len(fitted), steps_of(len(fitted), params), params):
        return WORST
    return held_loss(network, xs[held], ys[held])


LR = ("lr", "learning_rate", "eta", "step_size", "max_lr", "base_lr", "peak_lr")
DECAY = ("weight_decay", "wd", "l2", "decay", "weightdecay", "reg")
DROPOUT = ("dropout", "drop", "dropout_rate", "p_drop", "dropout_p", "drop_rate")
WIDTH = ("width", "hidden", "units", "hidden_size", "hidden_dim", "n_hidden", "hidden_units")
LAYERS = ("layers", "n_layers", "num_layers", "depth", "hidden_layers")
BATCH = ("batch", "batch_size", "bs", "train_batch_size", "minibatch")
WARMUP = ("warmup", "warmup_ratio", "warm_up", "warmup_frac", "warmup_fraction", "warmup_share")
SCHEDULE = ("schedule", "lr_schedule", "scheduler", "lr_scheduler_type", "sched")
EPOCHS = ("epochs", "n_epochs", "num_epochs", "max_epochs", "num_train_epochs")
CLIP = ("clip", "max_grad_norm", "grad_clip", "clip_norm")
SMOOTHING = ("label_smoothing", "smoothing", "ls")
LRS = (1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
ADAMW_ALONE = Options(("optimizer",), (("adamw",),), "adamw", share=0.0)
ADAM_FAMILY = Options(("optimizer", "opt"), (("adamw", "AdamW"), ("adam", "Adam")), "adamw", 0.12)
BOTH = Options(("optimizer", "opt", "optim"), (("adamw", "AdamW"), ("sgd", "SGD")), "adamw", 0.5)
SGD_ALONE = Options(("optimizer",), (("sgd",),), "sgd", share=0.0)
SCHEDULES = Options(SCHEDULE, (("constant", "none"), ("cosine", "cos"), ("linear",)), "constant")
BETA1 = Number(("beta1", "beta_1", "adam_beta1"), 0.8, 0.99, 0.9, share=0.3)
BETA2 = Number(("beta2", "beta_2", "adam_beta2"), 0.9, 0.9999, 0.999, share=0.45,
               levels=(0.9, 0.95, 0.98, 0.99, 0.999))  # fmt: skip
MOMENTUM = Number(("momentum", "mom"), 0.0, 0.99, 0.9, share=0.95, levels=(0.0, 0.5, 0.9, 0.95))
NESTEROV = Options(("nesterov",), ((True,), (False,)), False, share=0.6)
ACTIVATION = Options(("activation", "act", "nonlinearity"),
                     (("relu", "ReLU"), ("tanh", "Tanh"), ("gelu", "GELU"), ("silu", "SiLU")),
                     "relu", share=0.5)  # fmt: skip
NONE: tuple[Parameter, ...] = (  # what some models have and others keep at its default
    Number(("eps",), 1e-9, 1e-3, 1e-8, log=True, share=0.0),
    Number(("clip",), 0.1, 10.0, None, log=True, share=0.0),
    Number(("label_smoothing",), 0.0, 0.3, 0.0, share=0.0),
    Number(("momentum",), 0.0, 0.99, 0.9, share=0.0),
    Options(("nesterov",), ((True,), (False,)), False, share=0.0),
    Number(("beta1",), 0.8, 0.99, 0.9, share=0.0),
    Number(("beta2",), 0.9, 0.9999, 0.999, share=0.0),
    Number(("warmup",), 0.0, 0.5, 0.0, share=0.0),
)


def _with_rest(*parameters: Parameter) -> tuple[Parameter, ...]:
    own = {parameter.names[0] for parameter in parameters}
    return (*parameters, *(one for one in NONE if one.names[0] not in own))


def _smoothing(numbers: bool) -> Number:
    return Number(SMOOTHING, 0.0, 0.3, 0.0, share=0.0 if numbers else 0.4)


def _adamw(numbers: bool) -> tuple[Parameter, ...]:
    return _with_rest(
        ADAM_FAMILY,
        Number(LR, 1e-5, 0.3, 3e-3, log=True, share=1.0, levels=LRS),
        Number(DECAY, 1e-6, 3.0, 1e-2, log=True, share=0.9),
        Number(WARMUP, 0.0, 0.5, 0.0, share=0.6),
        SCHEDULES,
        Number(DROPOUT, 0.0, 0.7, 0.0, share=0.8),
        Number(BATCH, 8, 128, 32, log=True, whole=True, levels=(8, 16, 32, 64, 128), share=0.75),
        Number(WIDTH, 8, 256, 64, log=True, whole=True, levels=(16, 32, 64, 128, 256), share=0.8),
        Number(LAYERS, 1, 4, 2, whole=True, share=0.7),
        _smoothing(numbers),
        BETA1,
        BETA2,
        Number(("eps", "epsilon", "adam_eps"), 1e-9, 1e-3, 1e-8, log=True, share=0.2),
        Number(CLIP, 0.1, 10.0, None, log=True, share=0.3),
        ACTIVATION,
        Number(EPOCHS, 3, 30, 15, whole=True, share=0.6),
    )


def _sgd(numbers: bool) -> tuple[Parameter, ...]:
    four = (("constant", "none"), ("cosine", "cos"), ("step",), ("linear",))
    return _with_rest(
        SGD_ALONE,
        Number(LR, 1e-4, 3.0, 0.05, log=True, share=1.0, levels=(1e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)),
        MOMENTUM,
        NESTEROV,
        Number(DECAY, 1e-7, 0.3, 1e-4, log=True, share=0.85),
        Options(SCHEDULE, four, "constant"),
        Number(WARMUP, 0.0, 0.5, 0.0, share=0.4),
        Number(DROPOUT, 0.0, 0.7, 0.0, share=0.6),
        Number(BATCH, 8, 128, 32, log=True, whole=True, levels=(8, 16, 32, 64, 128), share=0.85),
        Number(WIDTH, 8, 256, 64, log=True, whole=True, levels=(16, 32, 64, 128, 256), share=0.8),
        Number(LAYERS, 1, 4, 2, whole=True, share=0.7),
        _smoothing(numbers),
        Number(CLIP, 0.1, 10.0, None, log=True, share=0.2),
        ACTIVATION,
        Number(EPOCHS, 3, 30, 15, whole=True, share=0.6),
    )


ACTIVATION_ALONE = Options(("activation",), (("relu",),), "relu", share=0.0)
ADAM_ALONE = Options(("optimizer",), (("adam",),), "adam", share=0.0)
WIDE_BATCH = Number(BATCH, 8, 256, 32, log=True, whole=True, levels=(8, 16, 32, 64, 128, 256),
                    share=0.9)  # fmt: skip
WIDE_WIDTH = Number(WIDTH, 16, 512, 64, log=True, whole=True, levels=(16, 32, 64, 128, 256, 512),
                    share=0.9)  # fmt: skip


def _long_adam(epochs: int) -> tuple[Parameter, ...]:
    """Trained until most has been learned, with ranges of many decades."""
    return _with_rest(
        ADAM_ALONE,
        Number(LR, 1e-5, 1.0, 1e-3, log=True, share=1.0, levels=LRS),
        Number((*DECAY, "alpha"), 1e-8, 1.0, 1e-4, log=True, share=0.9),
        WIDE_BATCH,
        WIDE_WIDTH,
        Number(LAYERS, 1, 3, 2, whole=True, share=0.8),
        Number(DROPOUT, 0.0, 0.8, 0.0, share=0.4, levels=(0.0, 0.3, 0.6)),
        Options(SCHEDULE, (("constant", "const", "none"), ("cosine", "cos")), "constant", 0.4),
        Options(ACTIVATION.names, (("relu", "ReLU"), ("tanh", "Tanh")), "relu", share=0.4),
        Number(EPOCHS, epochs, epochs, epochs, whole=True, share=0.0),
    )


def _long_sgd(epochs: int) -> tuple[Parameter, ...]:
    return _with_rest(
        SGD_ALONE,
        Number(LR, 1e-4, 0.3, 0.03, log=True, share=1.0, levels=(1e-3, 1e-2, 3e-2, 0.1)),
        MOMENTUM,
        Number(DECAY, 1e-6, 0.1, 1e-4, log=True, share=0.9),
        Number(DROPOUT, 0.0, 0.95, 0.0, share=0.8),
        WIDE_BATCH,
        WIDE_WIDTH,
        Number(LAYERS, 1, 5, 2, whole=True, share=0.9),
        Options(SCHEDULE, (("cosine", "cos"), ("constant", "none")), "cosine", share=0.2),
        ACTIVATION_ALONE,
        Number(EPOCHS, epochs, epochs, epochs, whole=True, share=0.0),
    )


CONVOLUTIONS = _with_rest(
    BOTH,
    Number(LR, 1e-4, 0.5, 3e-3, log=True, share=1.0, levels=LRS),
    Number(DECAY, 1e-6, 0.5, 1e-4, log=True, share=0.8),
    Number(("momentum", "mom"), 0.0, 0.99, 0.9, share=0.85, when={"optimizer": ("sgd",)}),
    Number(WARMUP, 0.0, 0.4, 0.0, share=0.4),
    SCHEDULES,
    Number(DROPOUT, 0.0, 0.7, 0.0, share=0.8),
    Number(BATCH, 8, 128, 32, log=True, whole=True, levels=(8, 16, 32, 64, 128), share=0.75),
    Number(("width", "channels", "filters", "base_channels", "n_filters"), 2, 24, 8, log=True,
           whole=True, levels=(4, 8, 16, 24), share=0.8),
    Options(("kernel", "kernel_size", "ksize"), ((3,), (5,)), 3, share=0.4),
    Number(LAYERS[:4], 1, 2, 2, whole=True, share=0.6),
    Options(("norm", "normalization"), (("none",), ("batch", "batchnorm")), "none", share=0.4),
    Number(SMOOTHING, 0.0, 0.3, 0.0, share=0.35),
    ACTIVATION,
    Number(EPOCHS, 2, 10, 6, whole=True, share=0.5),
)  # fmt: skip
TEXT = _with_rest(
    ADAMW_ALONE,
    Number(LR, 1e-4, 0.1, 3e-3, log=True, share=1.0, levels=LRS),
    Number(DECAY, 1e-5, 3.0, 1e-2, log=True, share=0.8),
    Number(WARMUP, 0.0, 0.5, 0.0, share=0.8),
    SCHEDULES,
    Number(DROPOUT, 0.0, 0.5, 0.0, share=0.8),
    Number(("width", "d_model", "n_embd", "embed_dim", "hidden_size"), 16, 80, 32, whole=True,
           step=16, share=0.8, levels=(16, 32, 48, 64, 80)),
    Number(("layers", "n_layer", "num_layers", "n_layers", "depth"), 1, 3, 1, whole=True),
    Options(("heads", "n_head", "num_heads", "nhead"), ((1,), (2,), (4,)), 2, share=0.5),
    Number(("batch", "batch_size", "bs"), 4, 24, 8, log=True, whole=True, levels=(4, 8, 16, 24)),
    Number(("context", "block_size", "seq_len", "context_length", "max_length"), 8, 48, 24,
           log=True, whole=True, levels=(8, 16, 32, 48), share=0.6),
    Number(SMOOTHING, 0.0, 0.2, 0.0, share=0.2),
    BETA2,
    Number(CLIP, 0.1, 10.0, None, log=True, share=0.4),
    Number(("steps", "max_steps", "iters", "max_iters"), 20, 120, 70, whole=True, share=0.3),
)  # fmt: skip


def _adapters(*length: Parameter) -> tuple[Parameter, ...]:
    return _with_rest(
        ADAMW_ALONE,
        Number(("rank", "r", "lora_r", "lora_rank"), 1, 32, 8, log=True, whole=True, share=0.95,
               levels=(1, 2, 4, 8, 16, 32)),
        Number(("alpha", "lora_alpha", "scaling"), 1, 64, 16, log=True, whole=True, share=0.85,
               levels=(4, 8, 16, 32, 64)),
        Number(LR, 1e-5, 0.3, 3e-3, log=True, share=1.0, levels=LRS),
        Number(("dropout", "lora_dropout", "drop"), 0.0, 0.6, 0.0, share=0.8),
        Number(DECAY[:4], 1e-5, 3.0, 1e-2, log=True, share=0.65),
        Number(WARMUP, 0.0, 0.5, 0.0, share=0.7),
        SCHEDULES,
        Options(("targets", "target_modules", "modules"),
                (("attention",), ("mlp",), ("all", "all-linear")), "all", share=0.5),
        Number(BATCH[:4], 4, 64, 16, log=True, whole=True, levels=(4, 8, 16, 32, 64)),
        Number(SMOOTHING, 0.0, 0.3, 0.0, share=0.25),
        BETA2,
        Number(CLIP, 0.1, 10.0, None, log=True, share=0.25),
        *length,
    )  # fmt: skip


ADAPTED_IMAGES = _adapters(Number(EPOCHS, 2, 15, 8, whole=True, share=0.7))
ADAPTED_TEXT = _adapters(Number(("steps", "max_steps", "iters"), 10, 80, 50, whole=True, share=0.4))

LOSSES = partial(rows_loss, perceptron, False)
ERRORS = partial(rows_loss, perceptron, False, judge=held_errors)
NETWORKS: dict[str, tuple[tuple[Parameter, ...], Callable[[Params, str], float]]] = {
    "adamw": (_adamw(False), partial(rows_loss, perceptron, False)),
    "adamw_numbers": (_adamw(True), partial(rows_loss, perceptron, False)),
    "sgdm": (_sgd(False), partial(rows_loss, perceptron, False)),
    "sgdm_numbers": (_sgd(True), partial(rows_loss, perceptron, False)),
    "adam20_errors": (_long_adam(20), ERRORS),
    "adam20_numbers": (_long_adam(20), LOSSES),
    "adam100_errors": (_long_adam(100), ERRORS),
    "adam100_numbers": (_long_adam(100), LOSSES),
    "sgdm20_errors": (_long_sgd(20), ERRORS),
    "sgdm60_errors": (_long_sgd(60), ERRORS),
    "convolutions": (CONVOLUTIONS, partial(rows_loss, convolutions, True)),
    "text": (TEXT, text_loss),
    "adapted_images": (ADAPTED_IMAGES, adapted_images_loss),
    "adapted_text": (ADAPTED_TEXT, adapted_text_loss),
}
