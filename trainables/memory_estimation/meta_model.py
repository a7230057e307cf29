"""A task's model and samples without their values: shapes and dtypes alone.

The model is built on torch's meta device, where billions of weights take no memory and no time;
then its tensors become fake CPU tensors, for which torch chooses the same kernels as for real ones.
"""

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import Parameter
from torch.utils._pytree import tree_leaves, tree_map

from trainables.data import Batch, Data
from trainables.memory_estimation.memory_tracker import CannotForecast, MemoryTracker
from trainables.task import Task
from trainables.trainer.fit import adapt_model
from trainables.training import Training
from trainables.training_state import precision as formats

META = torch.device("meta")
BOOKKEEPING = frozenset(vars(nn.Module()))  # torch's own attributes: weights, modules, hooks


def meta_model(task: Task, training: Training) -> nn.Module:
    """Build the task's model on the meta device, with modules as the options require.

    Raises:
        CannotForecast: build_model reads values of tensors.
    """
    try:
        with META:
            model = formats.convert(task.build_model(), META, training.precision)
            return adapt_model(model, training)
    except (NotImplementedError, RuntimeError) as error:
        if "meta" not in str(error):
            raise
        raise CannotForecast(
            f"{type(task).__name__}.build_model looks at values of tensors while it builds the "
            f"model, and a forecast has none ({str(error).splitlines()[0]}); make them with "
            'device="cpu", or measure'
        ) from error


def count_weights(task: Task) -> int:
    """Count the weights of the task's model, shared ones once."""
    return sum(weight.numel() for weight in meta_model(task, Training()).parameters())


def to_fake(model: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """Replace the model's meta tensors by fake ones, in place; shared tensors stay shared.

    This includes tensors, and lists of tensors, that are plain attributes of modules.
    """
    fakes: dict[int, Tensor] = {}

    def fake(value: object) -> object:
        if not isinstance(value, Tensor) or not value.is_meta:
            return value
        return fakes.setdefault(id(value), _fake(value, mode))

    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = fake(tensor)  # type: ignore[assignment]
    for module in model.modules():
        for name, value in [*vars(module).items()]:
            if name not in BOOKKEEPING and any(map(_is_meta_tensor, tree_leaves(value))):
                object.__setattr__(module, name, tree_map(fake, value))
    return model


def _is_meta_tensor(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_meta


def _fake(tensor: Tensor, mode: FakeTensorMode) -> Tensor:
    with mode:
        empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return Parameter(empty, tensor.requires_grad) if isinstance(tensor, Parameter) else empty


def example_batch(data: Data, samples: int, training: Training) -> Batch:
    """Return a batch of real training samples on the CPU, for their shapes."""
    dtype = formats.of_samples(training.precision)
    train = data.train
    at_B = torch.arange(samples) % len(train)
    batch = train.to(torch.device("cpu"), dtype).batch(at_B)
    train.close()
    return batch


def stored_bytes(data: Data) -> int:
    """Return the bytes of samples that their sources keep on the device."""
    sources = (data.train, data.validation)
    columns = [tensor for source in sources for tensor in getattr(source, "columns", ())]
    return sum(column.nbytes for column in columns)


def losses_per_sample(task: Task) -> int:
    """Return how many loss values a training sample has (tokens of a text), from one sample."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    model = to_fake(meta_model(task, Training()), mode)
    batch = example_batch(task.load_data(), 1, Training())
    with mode, MemoryTracker(mode).tracking(), torch.no_grad():
        losses = task.compute_losses(model, tuple(mode.from_tensor(column) for column in batch))
    return losses.numel()
