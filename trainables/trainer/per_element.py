"""Checks that a task returns a value per element that counts, of which means can be made.

Means of micro-batches and ranks have no right weights where these differ in size, and elements that
do not count would dilute the mean. Either would change with the strategy, or look like a low loss.
"""

from collections.abc import Mapping

from torch import Tensor

from trainables.data import Batch
from trainables.task import Task

IGNORED = -100  # the default ignore_index of torch's losses, and the label of padding


def checked(
    task: Task, method: str, found: Mapping[str, object], batch: Batch, looked_at: set[str]
) -> Mapping[str, Tensor]:
    """Return what a method of the task returned for a batch, by name.

    Args:
        looked_at: methods whose values were compared with the labels; this method is added. That
            waits for the device, so only the first values of an order are compared.

    Raises:
        TypeError: a value is a single number, or no tensor.
        ValueError: values of elements that do not count are among them.
    """
    values = {name: _checked(task, method, value) for name, value in found.items()}
    if method not in looked_at:
        looked_at.add(method)
        for value in values.values():
            _check_ignored(task, method, value, batch)
    return values


def _checked(task: Task, method: str, value: object) -> Tensor:
    if isinstance(value, Tensor) and value.dim():
        return value
    kind = "a single number" if isinstance(value, Tensor) else f"a {type(value).__name__}"
    raise TypeError(
        f"{type(task).__name__}.{method} returned {kind} for a batch; return a tensor with a "
        'value for each sample or token that counts, not averaged: reduction="none" in torch. The '
        ".loss of a model of transformers is a mean, so compute losses from its .logits"
    )


def _check_ignored(task: Task, method: str, values: Tensor, batch: Batch) -> None:
    """Refuse values of 0 for elements with the label -100."""
    for column in batch:
        if column.is_floating_point() or column.is_complex() or column.dim() == 0:
            continue
        # Labels of a language model are shifted by one before its losses are computed.
        for labels in (column, column[..., 1:]):
            ignored = (labels == IGNORED).flatten()
            if labels.numel() != values.numel() or not ignored.any():
                continue
            if not values.detach().flatten()[ignored].any():
                raise ValueError(
                    f"{type(task).__name__}.{method} returned {values.numel()} values, of which "
                    f"{int(ignored.sum())} are 0 since their label is {IGNORED} (ignore_index); "
                    "they would count in the mean, so leave them out: values[labels != "
                    f"{IGNORED}]"
                )
