"""Task: a PyTorch trainable that defines what to learn; the runtime (trainer/) does the rest."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name

from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from trainables.data import Batch, Data
from trainables.parallel.plan import How, pairs
from trainables.worker import Worker


@dataclass(frozen=True)
class Task(ABC):
    """Model, data, losses and evaluation; fields are hyperparameters; see length.py for steps.

    Methods are verbs, so that `model`, `loss` or `optimizer` stay free as names of fields.

    The runtime seeds, shards, synchronizes, scales, clips, saves and restores. It reports
    `train/loss`, each value of `evaluate` and `score` as `val/NAME`, and the values of `measure`.

    A task needs `compute_losses`; if its optimizers take turns (a GAN's), it needs `compute_turn`
    and `evaluate` in its place.
    """

    lr: float = 1e-3
    batch: int = 64  # samples per update, over all ranks together

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError(f"batch is {self.batch}; give 1 sample or more")

    @abstractmethod
    def build_model(self) -> nn.Module:
        """Return a new model; equal seeds give equal weights on every rank."""

    @abstractmethod
    def load_data(self) -> Data:
        """Return the same samples in the same order on every rank; the runtime shards them."""

    def compute_losses(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return a loss per element that counts (sample, token): not averaged, in any shape.

        Args:
            model: call it, but do not access its attributes: under DDP it is wrapped.
        """
        raise NotImplementedError(f"{type(self).__name__} has no compute_losses; write it")

    def compute_turn(self, turn: str, model: nn.Module, batch: Batch) -> Tensor:
        """Return the losses of a turn, as `compute_losses` does, if `build_optimizer` names turns.

        An update has a pass and a step for each turn, in their order, with the same batch. Only
        the weights of the turn's optimizer are stepped; gradients of others are dropped, so a
        generator's turn may pass through the discriminator. Each turn's mean loss is reported as
        `train/loss/TURN`, the mean over all turns' elements as `train/loss`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no compute_turn; write it")

    def evaluate(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """Return values per sample by name, not averaged; means are reported as `val/NAME`."""
        return {"loss": self.compute_losses(model, batch)}

    def predict(self, model: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """Return what `score` needs of a batch: tensors by name, with a row for each sample.

        Pad generated texts to one length, the same for all batches. The model is as in `evaluate`:
        not wrapped, so `model.generate` of transformers can be called; it is not compiled.
        """
        return {}

    def score(self, predictions: Mapping[str, Tensor]) -> Mapping[str, float]:
        """Return metrics of all validation samples together, such as AUC, F1 or BLEU.

        Only rank 0 calls this: with all rows of `predict`, on its CPU, in the samples' order.
        """
        return {}

    def summarize(self, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Return metrics derived from a report's means, such as perplexity from the mean loss."""
        return {}

    def measure(self, model: nn.Module, sample: Batch) -> Mapping[str, float]:
        """Measure costs of the model besides its losses, by name; trainables.costs counts some.

        Each report has these values under their own names, so `metrics` and `limits` can name
        them at every step. They are measured on rank 0 before an order trains, and anew when a
        trial is resumed: a latency may differ then. The model is in eval mode, without gradients,
        uncompiled, in the training's precision; random numbers drawn here change nothing.

        Args:
            model: the whole model being trained, not wrapped. Where ranks share the model (fsdp,
                tensor, pipeline, deepspeed), a new one from `build_model` with initial weights in
                rank 0's main memory: its latency is a CPU's.
            sample: two evaluation samples (or one, if there is no other), on the model's device.
        """
        return {}

    def show(self, model: nn.Module) -> str:
        """Return text about the model for the log, at steps that are saved; empty: none.

        All ranks call it, in eval mode and without gradients, except those of a pipeline.
        """
        return ""

    def build_optimizer(
        self, model: nn.Module
    ) -> Optimizer | Sequence[Optimizer] | Mapping[str, Optimizer]:
        """Return the optimizer, with the learning rates at progress 0.

        Optimizers in a list step together, after one pass: such as Muon for hidden matrices and
        AdamW for the rest. Those in a dict take turns, by name: see `compute_turn`. Each weight
        has one optimizer; a weight without is frozen.
        """
        learning = [weight for weight in model.parameters() if weight.requires_grad]
        return AdamW(learning, lr=self.lr)

    def scale_from(self) -> "Task | None":
        """Return the smaller task for which the learning rate is given; None: it is this one's.

        Return `replace(self, width=64, ...)` with the sizes that may grow, and the batch if it may.
        optim/transfer.py says what is scaled, so that the best learning rate stays.
        """
        return None

    def plan_tensor(self, model: nn.Module) -> Mapping[str, How]:
        """Return how the ranks of a tensor group split linear layers, by their names in the model.

        By default they split pairs that follow one another in an nn.Sequential, with elementwise
        modules between. In attention, give query, key and value as "colwise" (each rank then has
        its share of the heads), and the output layer as "rowwise"; a parameter whose rows belong
        to heads, or an nn.Embedding whose columns do, is "colwise" too.
        """
        return pairs(model)

    def scale_lr(self, progress: float) -> float:
        """Return the factor on each learning rate, at a progress in [0, 1) of the whole trial."""
        return 1.0

    def train(self, worker: Worker) -> None:
        """Carry out an order on this rank."""
        # By name: a driver looks at the class and trains nothing, and the trainer is above tasks.
        resolve_name("trainables.trainer.fit:fit")(self, worker)
