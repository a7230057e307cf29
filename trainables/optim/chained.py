"""Several optimizers of one task, which the rest of the runtime sees as one.

They step together (Muon for matrices, AdamW for the rest), or take turns (those of a GAN's two
networks), each after a backward pass of its own.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from torch import nn
from torch.optim import Optimizer


class Chained(Optimizer):
    """Optimizers with the groups and the state of all of them, in their order.

    The groups and the state are the parts' own objects, so a learning rate that is set here holds
    there, and a checkpoint has everything. Each part steps and loads by its own methods.

    Args:
        turns: the parts' names, if they take turns; empty: they step together.
    """

    def __init__(self, parts: Sequence[Optimizer], turns: Sequence[str] = ()) -> None:
        super().__init__([group for part in parts for group in part.param_groups], {})
        self.parts, self.turns = tuple(parts), tuple(turns)
        self.gather()

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for part in self.parts:
            part.step()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        groups = iter(state_dict["param_groups"])
        for part in self.parts:
            own = list(islice(groups, len(part.param_groups)))
            indices = [index for group in own for index in group["params"]]
            state = {at: state_dict["state"][at] for at in indices if at in state_dict["state"]}
            part.load_state_dict({"state": state, "param_groups": own})
        self.gather()

    def gather(self) -> None:
        """Take up the groups and the state of the parts, which may have changed."""
        self.param_groups = [group for part in self.parts for group in part.param_groups]
        self.state = defaultdict(dict)
        for part in self.parts:
            self.state.update(part.state)
            part.state = self.state


def parts_of(optimizer: Optimizer) -> tuple[Optimizer, ...]:
    """Return the optimizers that it is made of."""
    return optimizer.parts if isinstance(optimizer, Chained) else (optimizer,)


def weights_of(optimizer: Optimizer) -> list[Any]:
    """Return the weights that it updates."""
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def turns_of(optimizer: Optimizer) -> tuple[str, ...]:
    """Return the names of optimizers that take turns; empty: all weights are updated together."""
    return optimizer.turns if isinstance(optimizer, Chained) else ()


def name_of(optimizer: Optimizer) -> str:
    """Return the names of its parts' classes, and of turns: a checkpoint is for the same only."""
    names = [type(part).__name__ for part in parts_of(optimizer)]
    if turns := turns_of(optimizer):
        names = [f"{turn}: {name}" for turn, name in zip(turns, names, strict=True)]
    return ", ".join(names)


def as_one(built: object, model: nn.Module, method: str) -> Optimizer:
    """Return what a task built as one optimizer.

    Args:
        built: an optimizer, a list or tuple of them, or a mapping from names of turns to them.
        model: whose weights it updates.
        method: the task's, for messages.

    Raises:
        TypeError: `built` is something else.
        ValueError: two of the optimizers update the same weight.
    """
    if isinstance(built, Optimizer):
        return built
    turns = list(built) if isinstance(built, Mapping) else []
    parts = list(built.values()) if isinstance(built, Mapping) else built
    if (
        not isinstance(parts, list | tuple)
        or not parts
        or not all(isinstance(part, Optimizer) for part in parts)
        or not all(isinstance(turn, str) and turn for turn in turns)
    ):
        raise TypeError(
            f"{method} returned {type(built).__name__}; return a torch.optim.Optimizer, a list of "
            "them that step together, or a dict from names to them, to take turns: several rates "
            "are groups of one optimizer, and a schedule is scale_lr or training.schedule"
        )
    holders = Counter(id(weight) for part in parts for weight in weights_of(part))
    if shared := [name for name, weight in model.named_parameters() if holders[id(weight)] > 1]:
        raise ValueError(
            f"{method}: two optimizers update {shared[0]}; give each weight to one of them, and "
            "let a network that learns from two losses add them up in one turn"
        )
    return Chained(parts, turns)
