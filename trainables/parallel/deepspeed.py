"""DeepSpeed's ZeRO: moments, then gradients, then weights are sharded over the ranks.

DeepSpeed exchanges gradients, updates, and gathers weights. This package still defines an update:
the sum of losses over their global count, the clipping, the learning rate. The task's optimizer
is kept too: on each of its steps a copy without state updates DeepSpeed's flat tensors, and its
state_dict has the complete, gathered state.

Source: Rajbhandari et al., ZeRO (2020), sections 5.1 to 5.3; offload, Ren et al., ZeRO-Offload
(2021).
"""

import gc
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainables.optim.clipping import By, Clipped, by_norm, total_norm
from trainables.parallel.agreement import END, Agreement
from trainables.parallel.partitions import Partitions, copy_without_state, on_rank_0
from trainables.parallel.strategy import Group
from trainables.pretrained import frozen_base_names
from trainables.training import Training
from trainables.training_state import precision as formats
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

gc.collect()  # frames that the import leaves in reference cycles; see ddp.py
# Ranks on CPUs would compile an exchange through shared memory when they meet, in buffers that
# several trials of a machine may share; training sends nothing that way (0.19.8).
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False

# These treat each element alone, so it does not matter that weights are flat and cut anywhere.
BY_ELEMENT = ("Adadelta", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "SGD")
BUCKET = 50_000_000  # elements of gradients in one message: 200 MB, not DeepSpeed's 2 GB


@dataclass
class EngineState:
    """DeepSpeed's objects for one order, made when its model is wrapped."""

    optimizer: Optimizer | None = None  # the task's
    engine: Any = None
    partitions: Partitions | None = None
    agreement: Agreement | None = None
    forward_ended: bool = False  # whether the next gradients are those of the losses
    ending: ExitStack = field(default_factory=ExitStack)  # undoes the wrapping after the order


@dataclass(frozen=True)
class DeepSpeed(Group):
    """DeepSpeed's engine on the ranks' own process group; a Strategy."""

    state: EngineState = field(default_factory=EngineState, compare=False)

    def __post_init__(self) -> None:
        device, accelerator = self.worker.device.type, get_accelerator().device_name()
        if device != accelerator:
            raise ValueError(
                f"deepspeed computes on {accelerator} in this process, the trial on {device}; "
                f"set the environment variable DS_ACCELERATOR={device}"
            )

    def to_device(self, model: nn.Module) -> nn.Module:
        # The GPU gets shards of the model, which need not fit there as a whole. DeepSpeed's weights
        # are all in 32 bits, also frozen ones.
        return formats.convert(model.float(), torch.device("cpu"), self.worker.training.precision)

    def setup_optimizer(self, optimizer: Optimizer) -> Optimizer:
        """Return the optimizer, after a check that it can update flat weights.

        Raises:
            ValueError: the optimizer is of a kind that needs weights in their shapes.
        """
        name = type(optimizer).__name__
        if name not in BY_ELEMENT or type(optimizer).__module__.split(".")[0] != "torch":
            raise ValueError(
                f"the optimizer is {name}, but deepspeed's weights are flat parts, where only "
                f"what treats each element alone can be used; choose {', '.join(BY_ELEMENT)}, or "
                "the strategy fsdp"
            )
        self.state.optimizer = optimizer
        return optimizer

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return DeepSpeed's engine over the model, with weights and momenta sharded from now on.

        A checkpoint has been restored before, into whole weights and the task's own optimizer.
        """
        optimizer, training, device = self.state.optimizer, self.worker.training, self.worker.device
        if optimizer is None:
            raise TypeError("there is no optimizer; call setup_optimizer before wrap")
        for name, weight in model.named_parameters():
            if weight.ndim == 0:
                raise ValueError(
                    f"{name} is a scalar parameter, which deepspeed cannot keep in a checkpoint; "
                    "give it the shape (1,), or choose another strategy"
                )
        states = {id(weight): state for weight, state in optimizer.state.items()}
        inner_optimizer, order_state = copy_without_state(optimizer), self.state
        with ExitStack() as ending:
            ending.enter_context(_local_rank(device))
            ending.callback(_drop_global_state)
            order_state.engine = engine = _engine(
                model, inner_optimizer, settings(training, device), device
            )
            order_state.ending = ending.pop_all()
        order_state.ending.callback(engine.destroy)
        order_state.agreement = agreement = Agreement.of("deepspeed", device)
        order_state.ending.callback(agreement.close)
        _agree_on_weights(agreement, engine.optimizer, training.zero_stage, model)
        self._refuse_other_gradients(model)
        order_state.partitions = Partitions(engine.optimizer, training.zero_stage, self.worker.rank)
        order_state.partitions.load_state(states)
        optimizer.state.clear()
        self._drive_inner_optimizer(optimizer, inner_optimizer)
        if training.zero_stage == 3:
            model.register_state_dict_post_hook(lambda *given: self._gather_into_state_dict(*given))
        wrapped: nn.Module = engine
        return wrapped

    @contextmanager
    def no_sync(self, model: nn.Module) -> Iterator[None]:
        self.state.engine.set_gradient_accumulation_boundary(False)
        try:
            yield
        finally:
            self.state.engine.set_gradient_accumulation_boundary(True)

    def begin_update(self, model: nn.Module, careful: bool) -> Tensor | None:
        self._partitions.drop_gradients()
        self.state.engine.set_gradient_accumulation_boundary(True)
        return None

    def end_update(self, model: nn.Module, careful: bool, failure: Exception | None) -> None:
        self._end_pass()

    def after_forward(self) -> None:
        self.state.forward_ended = True
        if self.worker.training.zero_stage == 3:
            self._end_pass()

    def _end_pass(self) -> None:
        if self.state.agreement is not None:
            self.state.agreement.check(END)

    def gradients(self, weights: Sequence[nn.Parameter]) -> list[Tensor]:
        return self._partitions.gradients()

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        shard_norm = total_norm(gradients).to(self.worker.device)
        return self.all_reduce_sum(shard_norm.square()).sqrt()

    @torch.no_grad()
    def clip(self, model: nn.Module, most: float, by: By) -> Clipped:
        gradients = self._partitions.gradients()
        # The gradients are on the CPU with offload.
        return by_norm(gradients, self.norm(gradients).to(gradients[0].device), most)

    def close(self) -> None:
        self.state.ending.close()
        self.state.engine = self.state.partitions = self.state.optimizer = None

    @property
    def _partitions(self) -> Partitions:
        if self.state.partitions is None:
            raise TypeError("the model is not wrapped yet; wrap it before training")
        return self.state.partitions

    def _drive_inner_optimizer(self, optimizer: Optimizer, inner: Optimizer) -> None:
        """Let the task's optimizer decide when and how the inner one steps, and show its state."""
        groups = [group for group in optimizer.param_groups if group["params"]]
        pairs = list(zip(groups, inner.param_groups, strict=True))
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        engine = self.state.engine

        def before_step(*_: Any) -> None:
            for task_group, inner_group in pairs:
                inner_group.update({key: task_group[key] for key in task_group if key != "params"})
            engine.optimizer.step()
            if engine.optimizer.overflow:
                raise Diverged("a gradient is not finite, so deepspeed did not take the step")
            for task_group, inner_group in pairs:  # some optimizers keep state there
                task_group.update({key: inner_group[key] for key in inner_group if key != "params"})

        def after_state_dict(_: Optimizer, packed: dict[str, Any]) -> dict[str, Any]:
            states = {
                index: self._partitions.gather_state(weight, self.worker.device)
                for index, weight in enumerate(weights)
                if weight.requires_grad
            }
            return {**packed, "state": {index: state for index, state in states.items() if state}}

        optimizer.register_step_pre_hook(before_step)
        optimizer.register_state_dict_post_hook(after_state_dict)

    def _refuse_other_gradients(self, model: nn.Module) -> None:
        """Refuse gradients in compute_losses that DeepSpeed takes for those of the losses."""
        state, stage = self.state, self.worker.training.zero_stage
        prologue = state.engine._backward_prologue

        def begin_forward(*_: object) -> None:
            state.forward_ended = False

        def checked_prologue() -> None:
            if not state.forward_ended and (stage < 3 or torch.is_grad_enabled()):
                raise ValueError(
                    f"training.strategy is deepspeed with zero_stage {stage}, but compute_losses "
                    "computes gradients itself (of a gradient penalty, for instance), which "
                    "deepspeed would take for those of the losses; choose ddp or zero1"
                )
            prologue()

        model.register_forward_pre_hook(begin_forward)
        state.engine._backward_prologue = checked_prologue

    @torch.no_grad()
    def _gather_into_state_dict(
        self, model: nn.Module, held: dict[str, Any], prefix: str, _: object
    ) -> None:
        """Put whole weights into a state_dict, one after the other, except those of a frozen base.

        All ranks must call this together.
        """
        base_names = frozen_base_names(model)
        for name, weight in model.named_parameters(remove_duplicate=False):
            if name not in base_names and f"{prefix}{name}" in held:
                with deepspeed.zero.GatheredParameters([weight]):
                    held[f"{prefix}{name}"] = on_rank_0(weight.detach().clone(), self.worker.rank)


def settings(training: Training, device: torch.device) -> dict[str, Any]:
    """Return DeepSpeed's configuration, which leaves to this package all but sharding a model."""
    stage: dict[str, Any] = {
        "stage": training.zero_stage,
        "reduce_bucket_size": BUCKET,
        "allgather_bucket_size": BUCKET,
        "memory_efficient_linear": False,  # it would replace torch's for all later models
    }
    if training.cpu_offload:
        offload_target = {"device": "cpu", "pin_memory": device.type == "cuda"}
        stage["offload_optimizer"] = offload_target
        if training.zero_stage == 3:
            stage["offload_param"] = offload_target
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,  # DeepSpeed would only count samples with it
        "zero_optimization": stage,
        "gradient_clipping": 0.0,  # DeepSpeed's default is 1
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,  # which would be compiled on the node
        "log_level": "warning",
    }
    if training.precision == "bf16-mixed":
        # Gradients must not be summed in 16 bits, in any module.
        config["torch_autocast"] = {
            "enabled": True,
            "dtype": "bfloat16",
            "lower_precision_safe_modules": [],
        }
    return config


def _engine(
    model: nn.Module, optimizer: Optimizer, config: dict[str, Any], device: torch.device
) -> Any:
    """Return DeepSpeed's engine; each weight is sharded before the next one goes to the GPU."""
    comm.init_distributed(dist_init_required=False)
    if config["zero_optimization"]["stage"] == 3:
        deepspeed.zero.Init(model, config_dict_or_path=config, dtype=torch.float32)
        for buffer in model.buffers():
            buffer.data = buffer.data.to(device)
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=optimizer, config=config, dist_init_required=False
    )
    return engine


def _agree_on_weights(agreement: Agreement, zero: Any, stage: int, model: nn.Module) -> None:
    """Let ranks agree on the weights that they exchange, before each exchange.

    Stages 1 and 2 reduce gradients only; in stage 3 each call of a module gathers its weights
    (0.19.8).
    """
    names = {id(weight): name for name, weight in model.named_parameters()}

    def agree_on_gradients(weights: Iterable[nn.Parameter]) -> None:
        agreement.check(*(f"had the gradient of {names[id(weight)]}" for weight in weights))

    if stage < 3:
        reduce = zero.reduce_ipg_grads

        def agreed_reduce(*args: Any, **named: Any) -> None:
            numbers = [entry[2] for bucket in zero.ipg_buckets.values() for entry in bucket.params]
            agree_on_gradients(zero.param_dict[number] for number in numbers)
            reduce(*args, **named)

        zero.reduce_ipg_grads = agreed_reduce
        return
    coordinator = zero.parameter_offload.get_param_coordinator()
    modules = {id(module): name or "the model" for name, module in model.named_modules()}
    reducing = "_DeepSpeedZeroOptimizer_Stage3__reduce_and_partition_ipg_grads"
    reduce, fetch = getattr(zero, reducing), coordinator.fetch_sub_module

    def agreed_reduce_of_shards(number_format: torch.dtype) -> None:
        agree_on_gradients(zero.ipg_buckets[number_format].params)
        reduce(number_format)

    def agreed_fetch(module: nn.Module, forward: bool) -> None:
        if next(module.parameters(recurse=False), None) is not None:
            agreement.check(f"called {modules[id(module)]}")
        fetch(module, forward)

    setattr(zero, reducing, agreed_reduce_of_shards)
    coordinator.fetch_sub_module = agreed_fetch


def _drop_global_state() -> None:
    """Let DeepSpeed keep nothing of an order: the next one has another process group."""
    groups._release_process_group_references()
    comm.cdb = None
    # Both would hold each model of stage 3 for as long as the process lives (0.19.8).
    parameter_offload.FWD_MODULE_STACK.clear()
    for method in vars(PartitionedParameterCoordinator).values():
        for cell in getattr(method, "__closure__", None) or ():
            if hasattr(cell.cell_contents, "cache_clear"):
                cell.cell_contents.cache_clear()


@contextmanager
def _local_rank(device: torch.device) -> Iterator[None]:
    """Tell DeepSpeed the rank's GPU as its launcher does, by an environment variable."""
    before = os.environ.get("LOCAL_RANK")
    os.environ["LOCAL_RANK"] = str(device.index or 0)
    try:
        yield
    finally:
        if before is None:
            del os.environ["LOCAL_RANK"]
        else:
            os.environ["LOCAL_RANK"] = before
