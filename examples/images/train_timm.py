"""Classification of small images by any network of timm, pretrained or not.

Axes: B images, C classes, S pixels a side.
Source: Wightman, PyTorch Image Models (2019), https://github.com/huggingface/pytorch-image-models.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, interpolate
from train_images import CLASSES, Name, check, load, scaled

from trainables.data import Batch, Data
from trainables.optim.building import OptimizerOptions, build
from trainables.pretrained import mark_frozen_base
from trainables.task import Task
from trainables.zoo.digits import class_metrics

try:
    import timm
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error}: this trainable needs it; pip install 'hposvc[timm]'"
    ) from error

Trained = Literal["all", "head"]


@dataclass(frozen=True)
class TimmImages(Task):
    """A network by its name in timm; reports val/accuracy (a share) and val/loss.

    Images are resized to `side`; networks with a fixed input size are built for that size.
    """

    lr: float = 1e-3
    batch: int = 128
    model: str = "resnet18"  # with or without the weights' tag, such as resnet18.a1_in1k
    pretrained: bool = False  # downloaded once per node from the Hugging Face hub
    trained: Trained = "all"
    data: Name = "digits"
    side: int = 32  # pixels
    weight_decay: float = 1e-2

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.data)
        if self.trained not in get_args(Trained):
            raise ValueError(
                f"trained is {self.trained!r}; choose one of {', '.join(get_args(Trained))}"
            )
        if self.trained == "head" and not self.pretrained:
            raise ValueError(
                "trained is 'head', and pretrained false: give a head pretrained features"
            )
        if self.side < 1:
            raise ValueError(f"side is {self.side}; give 1 pixel or more")
        _check_name(self.model, self.pretrained)

    def build_model(self) -> nn.Module:
        # On torch's meta device only shapes are needed.
        pretrained = self.pretrained and not torch.empty(0).is_meta
        fixed = timm.get_pretrained_cfg(self.model)
        size = {"img_size": self.side} if fixed is not None and fixed.fixed_input_size else {}
        model: nn.Module = timm.create_model(
            self.model, pretrained=pretrained, num_classes=CLASSES, in_chans=1, **size
        )
        return with_head_alone(model) if self.trained == "head" else model

    def load_data(self) -> Data:
        return load(self.data)

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        images, labels_B = batch
        scores_BC = model(self._enlarged(images, model))
        return cross_entropy(scores_BC, labels_B, reduction="none")

    def evaluate(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        images, labels_B = batch
        return class_metrics(model(self._enlarged(images, model)), labels_B)

    def build_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return build(model, OptimizerOptions("adamw", self.lr, self.weight_decay, 0.0, 1.0))

    def _enlarged(self, images: Tensor, model: nn.Module) -> Tensor:
        """Resize images to (B, 1, S, S)."""
        size = (self.side, self.side)
        return interpolate(scaled(images, model), size, mode="bilinear", antialias=True)


def with_head_alone(model: nn.Module) -> nn.Module:
    """Freeze all of a model but the classifier, running statistics included, and return it."""
    model.requires_grad_(False)
    model.get_classifier().requires_grad_(True)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = 0.0
    mark_frozen_base(model)
    return model


def _check_name(name: str, pretrained: bool) -> None:
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        raise ValueError(f"model is {name!r}, which timm does not know; {_nearest_hint(name, '*')}")
    if tag and name not in timm.list_models(f"{architecture}.*", include_tags=True):
        raise ValueError(
            f"model is {name!r}; {architecture} has no weights of that tag; "
            f"{_nearest_hint(name, f'{architecture}.*')}"
        )
    if pretrained and not timm.is_model_pretrained(name):
        raise ValueError(
            f"model is {name!r}, which has no pretrained weights; let pretrained be false, or "
            f"choose another: {_nearest_hint(name, '*')}"
        )


def _nearest_hint(name: str, pattern: str) -> str:
    names = timm.list_pretrained(pattern)
    if "." not in name:
        names = list({model_name.partition(".")[0] for model_name in names})
    matches = get_close_matches(name, names, n=3, cutoff=0.0)
    return f"the nearest are {', '.join(matches)}" if matches else "there are none"
