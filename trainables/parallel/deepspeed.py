"""DeepSpeed's ZeRO: moments, then gradients, then weights are dealt out over the ranks.

DeepSpeed exchanges gradients, updates, and gathers weights. What an update is stays ours: the sum
of losses over their global count, the clipping, the learning rate. The task's optimizer stays what
it is too: a twin of it updates DeepSpeed's flat tensors whenever it is asked for a step, and its
state_dict has the whole state, gathered.

Source: Rajbhandari et al., ZeRO (2020), sections 5.1 to 5.3; offload, Ren et al., ZeRO-Offload
(2021).
"""

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainables.frozen import brought
from trainables.optim.clipping import By, Clipped, by_norm, total_norm
from trainables.parallel.partitions import Partitions, on_rank_0, twin
from trainables.parallel.strategies import Group
from trainables.training import Training
from trainables.worker import Diverged

try:
    import deepspeed
    from deepspeed.accelerator import get_accelerator
    from deepspeed.comm import comm
    from deepspeed.runtime.zero import parameter_offload
    from deepspeed.runtime.zero.partitioned_param_coordinator import PartitionedParameterCoordinator
    from deepspeed.utils import groups
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"training.strategy is deepspeed, but {missing.name} is not installed on this node; "
        "pip install 'hposvc[deepspeed]', or choose the strategy fsdp"
    ) from missing

if TYPE_CHECKING:
    from trainables.fitting.passes import Passes

gc.collect()  # of frames that its import leaves in cycles; see ddp.py
# Ranks on CPUs would compile exchange by shared memory when they meet, in buffers that several
# trials of a machine can have in common; training sends nothing that way (0.19.8).
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False

# They treat each element alone, so it does not matter that weights are flat, and cut anywhere.
BY_ELEMENT = ("Adadelta", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "SGD")
BUCKET = 50_000_000  # elements of gradients that travel together: 200 MB, not DeepSpeed's 2 GB


@dataclass
class Made:
    """What there is of an order once its model is wrapped."""

    optimizer: Optimizer | None = None  # the task's
    engine: Any = None
    partitions: Partitions | None = None
    ending: ExitStack = field(default_factory=ExitStack)  # what is to be undone after the order


@dataclass(frozen=True)
class DeepSpeed(Group):
    """DeepSpeed's engine on the ranks' own process group; a Strategy."""

    made: Made = field(default_factory=Made, compare=False)

    def __post_init__(self) -> None:
        kind, found = self.worker.device.type, get_accelerator().device_name()
        if kind != found:
            raise ValueError(
                f"deepspeed computes on {found} in this process, the trial on {kind}; set the "
                f"environment variable DS_ACCELERATOR={kind}"
            )

    @property
    def home(self) -> torch.device:
        # The GPU, which need not hold the whole model, gets parts of it.
        return torch.device("cpu")

    def adopt(self, optimizer: Optimizer) -> Optimizer:
        """The same optimizer, once it is known that flat weights can be left to it.

        Raises:
            ValueError: it is of a kind that looks at whole weights.
        """
        name = type(optimizer).__name__
        if name not in BY_ELEMENT or type(optimizer).__module__.split(".")[0] != "torch":
            raise ValueError(
                f"the optimizer is {name}, but deepspeed's weights are flat parts, where only "
                f"what treats each element alone can be used; choose {', '.join(BY_ELEMENT)}, or "
                "the strategy fsdp"
            )
        self.made.optimizer = optimizer
        return optimizer

    def wrap(self, model: nn.Module) -> nn.Module:
        """The engine over the model, whose weights and momenta are dealt out from now on.

        A checkpoint has been restored by now, on whole weights and on the task's own optimizer.
        """
        optimizer, training, device = self.made.optimizer, self.worker.training, self.worker.device
        if optimizer is None:
            raise TypeError("there is no optimizer; adopt one before the model is wrapped")
        given = {id(weight): kept for weight, kept in optimizer.state.items()}
        inner, made = twin(optimizer), self.made
        with ExitStack() as ending:
            ending.enter_context(_local_rank(device))
            ending.callback(_forget)
            made.engine = engine = _engine(model, inner, settings(training, device), device)
            made.ending = ending.pop_all()
        made.ending.callback(engine.destroy)
        made.partitions = Partitions(engine.optimizer, training.zero_stage, self.worker.rank)
        made.partitions.give(given)
        optimizer.state.clear()
        self._lead(optimizer, inner)
        if training.zero_stage == 3:
            model.register_state_dict_post_hook(lambda *given: self._gather(*given))
        wrapped: nn.Module = engine
        return wrapped

    @contextmanager
    def local(self, model: nn.Module) -> Iterator[None]:
        self.made.engine.set_gradient_accumulation_boundary(False)
        try:
            yield
        finally:
            self.made.engine.set_gradient_accumulation_boundary(True)

    def backward(
        self, passes: "Passes", parts: Sequence[Tensor], scale: float, careful: bool
    ) -> Tensor:
        self._partitions.forget()
        self.made.engine.set_gradient_accumulation_boundary(True)
        return super().backward(passes, parts, scale, careful)

    def gradients(self, weights: Sequence[nn.Parameter]) -> list[Tensor]:
        return self._partitions.gradients()

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        own = total_norm(gradients).to(self.worker.device)
        return self.sum(own.square()).sqrt()

    @torch.no_grad()
    def clip(self, model: nn.Module, most: float, by: By) -> Clipped:
        held = self._partitions.gradients()
        return by_norm(held, self.norm(held).to(held[0].device), most)  # the CPU, with offload

    def close(self) -> None:
        self.made.ending.close()
        self.made.engine = self.made.partitions = self.made.optimizer = None

    @property
    def _partitions(self) -> Partitions:
        if self.made.partitions is None:
            raise TypeError("the model is not wrapped yet; wrap it before training")
        return self.made.partitions

    def _lead(self, optimizer: Optimizer, inner: Optimizer) -> None:
        """Let the task's optimizer decide when and how the inner one steps, and show its state."""
        own = [group for group in optimizer.param_groups if group["params"]]
        pairs = list(zip(own, inner.param_groups, strict=True))
        numbered = [weight for group in optimizer.param_groups for weight in group["params"]]
        engine = self.made.engine

        def before_step(*_: Any) -> None:
            for told, followed in pairs:
                followed.update({key: told[key] for key in told if key != "params"})
            engine.optimizer.step()
            if engine.optimizer.overflow:
                raise Diverged("a gradient is not finite, so deepspeed did not take the step")

        def after_state_dict(_: Optimizer, packed: dict[str, Any]) -> dict[str, Any]:
            states = {
                at: self._partitions.take(weight, self.worker.device)
                for at, weight in enumerate(numbered)
                if weight.requires_grad
            }
            return {**packed, "state": {at: kept for at, kept in states.items() if kept}}

        optimizer.register_step_pre_hook(before_step)
        optimizer.register_state_dict_post_hook(after_state_dict)

    @torch.no_grad()
    def _gather(self, model: nn.Module, held: dict[str, Any], prefix: str, _: object) -> None:
        """Put whole weights into a state_dict, one after the other; those frozen from outside not.

        All ranks call it together.
        """
        outside = brought(model)
        for name, weight in model.named_parameters(remove_duplicate=False):
            if name not in outside and f"{prefix}{name}" in held:
                with deepspeed.zero.GatheredParameters([weight]):
                    held[f"{prefix}{name}"] = on_rank_0(weight.detach().clone(), self.worker.rank)


def settings(training: Training, device: torch.device) -> dict[str, Any]:
    """DeepSpeed's configuration, which leaves to us what is not about sharing a model."""
    stage: dict[str, Any] = {
        "stage": training.zero_stage,
        "reduce_bucket_size": BUCKET,
        "allgather_bucket_size": BUCKET,
        "memory_efficient_linear": False,  # it would replace torch's own for all models to come
    }
    if training.offload:
        place = {"device": "cpu", "pin_memory": device.type == "cuda"}
        stage["offload_optimizer"] = place
        if training.zero_stage == 3:
            stage["offload_param"] = place
    found: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,  # it would count samples with it
        "zero_optimization": stage,
        "gradient_clipping": 0.0,  # its default is 1
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,  # that one is compiled where it runs
        "log_level": "warning",
    }
    if training.precision == "bf16-mixed":
        # No module's gradients are to be added up in 16 bits.
        found["torch_autocast"] = {
            "enabled": True,
            "dtype": "bfloat16",
            "lower_precision_safe_modules": [],
        }
    return found


def _engine(
    model: nn.Module, optimizer: Optimizer, config: dict[str, Any], device: torch.device
) -> Any:
    """DeepSpeed's engine; each weight is dealt out before the next one goes to the GPU."""
    comm.init_distributed(dist_init_required=False)
    if config["zero_optimization"]["stage"] == 3:
        deepspeed.zero.Init(model, config_dict_or_path=config, dtype=torch.float32)
        for buffer in model.buffers():
            buffer.data = buffer.data.to(device)
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=optimizer, config=config, dist_init_required=False
    )
    return engine


def _forget() -> None:
    """Let DeepSpeed keep nothing of an order: the next process group will be another one."""
    groups._release_process_group_references()
    comm.cdb = None
    # Either would hold each model of stage 3 for as long as the process lives (0.19.8).
    parameter_offload.FWD_MODULE_STACK.clear()
    for method in vars(PartitionedParameterCoordinator).values():
        for cell in getattr(method, "__closure__", None) or ():
            if hasattr(cell.cell_contents, "cache_clear"):
                cell.cell_contents.cache_clear()


@contextmanager
def _local_rank(device: torch.device) -> Iterator[None]:
    """Tell DeepSpeed the rank's GPU the way that its launcher does."""
    before = os.environ.get("LOCAL_RANK")
    os.environ["LOCAL_RANK"] = str(device.index or 0)
    try:
        yield
    finally:
        if before is None:
            del os.environ["LOCAL_RANK"]
        else:
            os.environ["LOCAL_RANK"] = before
