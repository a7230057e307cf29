"""Ax with what it chooses by itself."""

from typing import Any

from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

from peers.method import Axis, Params, active, axes, filled
from peers.threads import seed_torch
from searchers import Space


class Ax:
    def __init__(self, space: Space, seed: int, budget: int) -> None:
        seed_torch(seed)
        self.space, self.axes = space, axes(space)
        self.client = Client(random_seed=seed)
        self.client.configure_experiment([_parameter(axis) for axis in self.axes.values()])
        self.client.configure_optimization(objective="-loss")

    def ask(self) -> tuple[Params, Any]:
        ((index, values),) = self.client.get_next_trials(max_trials=1).items()
        full = {name: axis.backward(values[name]) for name, axis in self.axes.items()}
        return active(self.space, full), index

    def tell(self, asked: Any, loss: float) -> None:
        self.client.complete_trial(trial_index=asked, raw_data={"loss": loss})

    def add(self, params: Params, loss: float) -> None:
        full = filled(self.space, params)
        values = {name: axis.forward(full[name]) for name, axis in self.axes.items()}
        self.tell(self.client.attach_trial(values), loss)


def _parameter(axis: Axis) -> ChoiceParameterConfig | RangeParameterConfig:
    if axis.kind == "label":
        return ChoiceParameterConfig(
            name=axis.name, values=axis.labels, parameter_type="str", is_ordered=False
        )
    return RangeParameterConfig(
        name=axis.name,
        bounds=(axis.low, axis.high),
        parameter_type=axis.kind,
        scaling="log" if axis.log else "linear",
    )
