"""A task's model and samples without their numbers: shapes and formats alone.

The model is built on torch's meta device, so that one of billions of weights takes no memory and
no time; then its tensors become fake ones of a CPU, which choose the same kernels as real ones.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import Parameter
from torch.utils._pytree import tree_leaves, tree_map

from trainables.data import Batch, Data
from trainables.fitting import precision as formats
from trainables.fitting.fit import build_model
from trainables.forecasting.ledger import Ledger, NotForeseen
from trainables.training import Training

if TYPE_CHECKING:
    from trainables.task import Task

META = torch.device("meta")
BOOKKEEPING = frozenset(vars(nn.Module()))  # of torch: weights, modules, hooks


def outline(task: "Task", training: Training) -> nn.Module:
    """The task's model on the meta device, its modules as the options want them.

    Raises:
        NotForeseen: build_model needs numbers that are not there.
    """
    try:
        with META:
            return build_model(task, training, META)
    except (NotImplementedError, RuntimeError) as error:
        if "meta" not in str(error):
            raise
        raise NotForeseen(
            f"{type(task).__name__}.build_model looks at values of tensors while it builds the "
            f"model, and a forecast has none ({str(error).splitlines()[0]}); make them with "
            'device="cpu", or measure'
        ) from error


def count(task: "Task") -> int:
    """Weights of the task's model, those that are shared counted once."""
    return sum(weight.numel() for weight in outline(task, Training()).parameters())


def faked(model: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """The model with fake tensors in place of those of the meta device; shared ones stay so.

    Those that are neither parameters nor buffers too, where they or lists of them are attributes.
    """
    made: dict[int, Tensor] = {}

    def fake(value: object) -> object:
        if not isinstance(value, Tensor) or not value.is_meta:
            return value
        return made.setdefault(id(value), _fake(value, mode))

    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    held[name] = fake(tensor)  # type: ignore[assignment]
    for module in model.modules():
        for name, value in [*vars(module).items()]:
            if name not in BOOKKEEPING and any(map(_without_data, tree_leaves(value))):
                object.__setattr__(module, name, tree_map(fake, value))
    return model


def _without_data(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_meta


def _fake(tensor: Tensor, mode: FakeTensorMode) -> Tensor:
    with mode:
        found = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return Parameter(found, tensor.requires_grad) if isinstance(tensor, Parameter) else found


def example(data: Data, samples: int, training: Training) -> Batch:
    """As many training samples as asked for, for their shapes; real ones, on the CPU."""
    stored = formats.stored(training.precision)
    train = data.train
    at_B = torch.arange(samples) % len(train)
    batch = train.to(torch.device("cpu"), stored).batch(at_B)
    train.close()
    return batch


def bytes_of(data: Data) -> int:
    """What samples take on a device, where a source keeps them there."""
    sources = (data.train, data.validation)
    columns = [each for source in sources for each in getattr(source, "columns", ())]
    return sum(column.nbytes for column in columns)


def elements(task: "Task") -> int:
    """Values of the loss that a training sample brings, as tokens of a text; from one sample."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    model = faked(outline(task, Training()), mode)
    batch = example(task.load_data(), 1, Training())
    with mode, Ledger(mode).kept(), torch.no_grad():
        losses = task.compute_losses(model, tuple(mode.from_tensor(each) for each in batch))
    return losses.numel()
