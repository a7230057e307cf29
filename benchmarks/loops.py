"""Training loops that do the same work: ours, one written by hand, and those of two libraries.

A round is an epoch: the samples in random order, an update a batch, and the mean loss at the end.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import torch
from models import Sized
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainables import Training, Worker
from trainables.randomness import derive, permutation, seed_all
from trainables.trainer.fit import prepare

ROUNDS = 10**6  # of which there is no end


@dataclass(frozen=True)
class Setting:
    """What all loops have in common."""

    task: Sized
    rank: int
    ranks: int
    device: torch.device
    precision: str  # 32-true or bf16-mixed
    compile: bool

    def data(self) -> list[torch.Tensor]:
        """The columns, on the device."""
        return [column.to(self.device) for column in self.task.load_data().train.columns]

    def batches(self, round: int) -> list[torch.Tensor]:
        """This rank's share of the positions of each batch."""
        order = permutation(derive(0, "order", round + 1), self.task.updates * self.task.batch)
        batches = order.to(self.device).split(self.task.batch)
        return [at[self.rank :: self.ranks] for at in batches]


class Loop(Protocol):
    """A way to train."""

    def __init__(self, setting: Setting) -> None: ...

    def round(self, number: int) -> float:
        """An epoch; its mean loss on this rank."""
        ...

    def close(self) -> None:
        """It is not used any more."""
        ...


class Ours:
    """The runtime of this project, with all that is always on, reports included."""

    def __init__(self, setting: Setting) -> None:
        training = Training(
            strategy="ddp" if setting.ranks > 1 else "single",
            precision=setting.precision,  # type: ignore[arg-type]
            compile="inductor" if setting.compile else "none",
        )
        alone = Worker.alone(until=ROUNDS, training=training)
        on_gpu = setting.device.type == "cuda"
        worker = replace(
            alone, rank=setting.rank, world_size=setting.ranks, every=ROUNDS, gpu=on_gpu
        )
        self._stack = ExitStack()
        self._session = self._stack.enter_context(prepare(setting.task, worker))

    def round(self, number: int) -> float:
        tallies = self._session.train_steps(number + 1, number + 1)
        self._session.report(number + 1, tallies)
        total, count = tallies["train/loss"].tolist()
        return float(total / count)

    def close(self) -> None:
        self._stack.close()


class Bare:
    """As one writes it for one model."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        seed_all(derive(0, "model"))
        model = setting.task.build_model()
        self._data = setting.data()
        self._formats: Callable[[], AbstractContextManager[None]] = nullcontext
        self._set_up(model)

    def _set_up(self, model: nn.Module) -> None:
        setting = self._setting
        model.to(setting.device)
        self._optimizer: Any = setting.task.build_optimizer(model)
        if setting.compile:
            model.compile()
        self._model = _distributed(model, setting)
        if setting.precision == "bf16-mixed":
            self._formats = partial(torch.autocast, setting.device.type, torch.bfloat16)

    def _backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def round(self, number: int) -> float:
        self._model.train()
        sums = torch.zeros((), device=self._setting.device)
        batches = self._setting.batches(number)
        for at in batches:
            self._optimizer.zero_grad()
            with self._formats():
                batch = tuple(column[at] for column in self._data)
                loss = self._setting.task.compute_losses(self._model, batch).mean()
            self._backward(loss)
            self._optimizer.step()
            sums += loss.detach()
        return float(sums / len(batches))

    def close(self) -> None:
        pass


class Fabric(Bare):
    """Lightning Fabric's."""

    def _set_up(self, model: nn.Module) -> None:
        from lightning.fabric import Fabric as Theirs
        from lightning.fabric.plugins.environments import LightningEnvironment
        from lightning.fabric.strategies import DDPStrategy

        setting = self._setting
        ranks = _Ranks(LightningEnvironment, setting)
        self._fabric = Theirs(
            accelerator="gpu" if setting.device.type == "cuda" else "cpu",
            devices=1,
            strategy=DDPStrategy(cluster_environment=ranks) if setting.ranks > 1 else "auto",
            precision=setting.precision,  # type: ignore[arg-type]
        )
        self._fabric.launch()
        optimizer = setting.task.build_optimizer(model)
        if setting.compile:
            model.compile()
        self._model, self._optimizer = self._fabric.setup(model, optimizer)

    def _backward(self, loss: torch.Tensor) -> None:
        self._fabric.backward(loss)


class Accelerate(Bare):
    """Hugging Face's."""

    def _set_up(self, model: nn.Module) -> None:
        from accelerate import Accelerator

        setting = self._setting
        self._accelerator = Accelerator(
            cpu=setting.device.type == "cpu",
            mixed_precision="bf16" if setting.precision == "bf16-mixed" else "no",
        )
        if setting.compile:
            model.compile()
        optimizer = setting.task.build_optimizer(model)
        self._model, self._optimizer = self._accelerator.prepare(model, optimizer)

    def _backward(self, loss: torch.Tensor) -> None:
        self._accelerator.backward(loss)


LOOPS: dict[str, type[Loop]] = {
    "ours": Ours,
    "bare": Bare,
    "fabric": Fabric,
    "accelerate": Accelerate,
}


def _distributed(model: nn.Module, setting: Setting) -> nn.Module:
    if setting.ranks == 1:
        return model
    on_gpu = setting.device.type == "cuda"
    return DistributedDataParallel(
        model,
        device_ids=[setting.device] if on_gpu else None,
        gradient_as_bucket_view=True,
    )


def _Ranks(base: type, setting: Setting) -> Any:
    """Fabric's environment for ranks that are there and have met."""

    class Ranks(base):  # type: ignore[misc, valid-type]
        creates_processes_externally = True

        def world_size(self) -> int:
            return setting.ranks

        def set_world_size(self, size: int) -> None:
            pass

        def global_rank(self) -> int:
            return setting.rank

        def set_global_rank(self, rank: int) -> None:
            pass

        def local_rank(self) -> int:
            return 0

    return Ranks()
