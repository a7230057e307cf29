"""Layers whose frozen weight W gets a trained addition of low rank: W + scaling * B A.

The base's weights keep their names, so a merged model can be loaded like the base. Where they are
in 16 bits, adapters are in 32, and compute in 32 outside autocast; outputs have the base's format.

Source: Hu et al., LoRA (2021), section 4.1. B is initialized to zero, and A as in Kaiming He et al.
(2015) with a = sqrt(5), as torch initializes a linear layer, and Hu et al.'s code A.
"""

import math
from abc import abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.functional import embedding, linear


class Adapted(nn.Module):
    """The base class of adapted layers."""

    weight: Tensor  # of the base
    lora_A: Parameter  # (rank, inputs)
    lora_B: Parameter  # (outputs, rank)
    scaling: float
    replaced: tuple[Tensor, ...] = ()  # the base's own weight, while the layer is merged

    @abstractmethod
    def addition(self) -> Tensor:
        """Return the adapter's addition to the weight, in the weight's shape."""

    @torch.no_grad()
    def merge(self) -> None:
        """Add the adapter to the weight, so that the layer is as fast as the base."""
        if not self.replaced:
            # A new parameter, since a change in place would also change tied weights elsewhere.
            self.replaced = (self.weight,)
            merged = (self.weight + self.addition()).to(self.weight.dtype)
            self.weight = Parameter(merged, requires_grad=False)

    def unmerge(self) -> None:
        """Restore the base's own weight."""
        if self.replaced:
            (self.weight,) = self.replaced
            self.replaced = ()


class LoraLinear(Adapted, nn.Linear):
    """A linear layer with an adapter."""

    def __init__(self, base: nn.Linear, rank: int, scaling: float, dropout: float) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = base.in_features, base.out_features
        self.weight, self.bias, self.scaling = base.weight, base.bias, scaling
        self.dropout = nn.Dropout(dropout)
        exact = torch.promote_types(base.weight.dtype, torch.float32)
        self.lora_A = Parameter(base.weight.new_empty(rank, self.in_features, dtype=exact))
        self.lora_B = Parameter(base.weight.new_zeros(self.out_features, rank, dtype=exact))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def addition(self) -> Tensor:
        return self.lora_B @ self.lora_A * self.scaling

    def forward(self, x: Tensor) -> Tensor:
        output = linear(x, self.weight, self.bias)
        if self.replaced:
            return output
        if not torch.is_autocast_enabled(x.device.type):
            x = x.to(self.lora_A.dtype)
        added = linear(linear(self.dropout(x), self.lora_A), self.lora_B) * self.scaling
        return output + added.to(output.dtype)


class LoraEmbedding(Adapted, nn.Embedding):
    """An embedding with an adapter; A is initialized to zero and B is not, as in peft."""

    def __init__(self, base: nn.Embedding, rank: int, scaling: float) -> None:
        nn.Module.__init__(self)
        self.num_embeddings, self.embedding_dim = base.num_embeddings, base.embedding_dim
        self.padding_idx, self.max_norm, self.norm_type = base.padding_idx, None, base.norm_type
        self.scale_grad_by_freq, self.sparse = base.scale_grad_by_freq, base.sparse
        self.weight, self.scaling = base.weight, scaling
        exact = torch.promote_types(base.weight.dtype, torch.float32)
        self.lora_A = Parameter(base.weight.new_zeros(rank, self.num_embeddings, dtype=exact))
        self.lora_B = Parameter(base.weight.new_empty(self.embedding_dim, rank, dtype=exact))
        nn.init.normal_(self.lora_B)

    def addition(self) -> Tensor:
        return (self.lora_B @ self.lora_A).T * self.scaling

    def forward(self, at: Tensor) -> Tensor:
        vectors = embedding(at, self.weight, self.padding_idx)
        if self.replaced:
            return vectors
        added = linear(embedding(at, self.lora_A.T), self.lora_B) * self.scaling
        return vectors + added.to(vectors.dtype)
