"""The updates that K trials make at once.

Axes: K trials, N training samples, B samples of a batch, P weights of a trial, U updates of a step,
G groups of the optimizer, C coefficients of its update.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from trainables.batched import dropout
from trainables.batched.member import Member
from trainables.batched.optimizers import alike
from trainables.batched.passes import Passes, Tallies
from trainables.batched.refusals import Unbatchable
from trainables.batched.shares import Turn
from trainables.batched.stack import Layout, Stack
from trainables.fitting.tallies import add_up
from trainables.randomness import derive, seed_all
from trainables.watching.clock import Clock


class Tallied(NamedTuple):
    """What a step of one trial came to."""

    tallies: dict[str, Tensor]  # of losses and metrics, on the CPU
    cut: Tensor | None  # of gradient norms, and of the share that was clipped: (2, 2)
    updates: int


class Lockstep:
    """Trials that are at the same update of their steps.

    Args:
        pattern: one of them, whose model, data and optimizer stand for all; `add` it as well.
    """

    def __init__(self, pattern: Member) -> None:
        session = pattern.session
        self.members: list[Member] = []
        self._layout = Layout.of(session.state)
        self._optimizer = alike(session.state.optimizer)
        weight = session.state.optimizer.param_groups[0]["params"][0]
        self._stack = Stack(self._layout, self._optimizer, weight.detach())
        self._clock = Clock(session.worker.device)
        self._passes = Passes(session.passes, self._clock)
        self._size = session.task.batch
        self._data = session.passes.data

    def check(self, member: Member) -> None:
        """Refuse another kind of optimizer, or other groups of weights.

        Raises:
            Unbatchable: with what differs.
        """
        state = member.session.state
        theirs = type(self.members[0].session.state.optimizer).__name__
        if alike(state.optimizer) != self._optimizer:
            raise Unbatchable(
                f"its optimizer is {type(state.optimizer).__name__}, that of the trials that it "
                f"would train with {theirs}, or another variant; trials that train at once have "
                "one kind"
            )
        if Layout.of(state) != self._layout:
            raise Unbatchable("its optimizer has other groups of weights than the others'")

    def add(self, member: Member) -> None:
        """Give it a row."""
        member.updates = self._stack.append(member.session.state)
        member.session.state.optimizer.state.clear()  # of a checkpoint; it is in the rows now
        self._place([*self.members, member])

    def keep(self, rows: Sequence[int]) -> None:
        """Leave only the trials of these rows."""
        self._stack.keep(rows)
        self._place([self.members[row] for row in rows])

    def save(self, row: int) -> None:
        """Let a trial's own model and optimizer be up to date, if that is going to be saved."""
        if self.members[row].saves:
            self.lay(row)

    def lay(self, row: int) -> None:
        """Bring a trial's own model and optimizer up to date."""
        member = self.members[row]
        self._stack.lay(row, member.session.state, member.updates)

    def saved(self, row: int) -> None:
        """What `lay` gave the trial's own optimizer is not needed any more."""
        self.members[row].session.state.optimizer.state.clear()

    def train(self) -> list[Tallied]:
        """A step of all of them, and what it came to for each."""
        first = self.members[0]
        seed_all(derive(first.worker.seed, "batched", first.step))  # for what is no nn.Dropout
        order_KN = torch.stack([member.order() for member in self.members])
        batches = order_KN.to(self._data.train.home).split(self._size, dim=1)
        losses_K2, cut_K22 = self._update(batches)
        found = {"train/loss": losses_K2, **self._evaluate()}
        table = torch.stack(list(found.values()), dim=1).cpu()
        cuts = None if cut_K22 is None else cut_K22.cpu()
        turn = Turn.over(self._clock, len(batches), len(self.members), self._stack.weights_KP)
        for member in self.members:
            member.updates += len(batches)
            member.shares.hear(turn)
        return [
            Tallied(
                dict(zip(found, table[row], strict=True)), _own(cuts, row, member), len(batches)
            )
            for row, member in enumerate(self.members)
        ]

    def _place(self, members: list[Member]) -> None:
        self.members = members
        if not members:
            return
        draws = self._passes.draws
        draws.generators = [member.generator for member in members]
        rates = [dropout.rates(member.session.passes.bare) for member in members]
        draws.rates = {name: [each[name] for each in rates] for name in rates[0]}
        self._passes.place([member.session.task for member in members], self._stack.weights_KP)

    def _update(self, batches: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        """The updates of a step; tallies of losses, and of norms and clipping."""
        given_UGCK = self._coefficients(len(batches))
        bounds = [member.worker.training.clip for member in self.members]
        most_K = self._stack.weights_KP.new_tensor([bound or math.inf for bound in bounds])
        losses_K2 = torch.zeros(len(bounds), 2, dtype=torch.float64, device=most_K.device)
        cut_K22 = None if not any(bounds) else losses_K2.new_zeros(len(bounds), 2, 2)
        for at_KB, given_GCK in zip(batches, given_UGCK, strict=True):
            self._clock.next_update()
            g_KP, tally_K2 = self._passes.gradients(self._stack, at_KB)
            losses_K2 += tally_K2
            with self._clock.part("optimizer"):
                if cut_K22 is not None:
                    cut_K22 += clip(g_KP, most_K)
                self._stack.step(g_KP, given_GCK)
            del g_KP  # the passes that follow need the room
            for member in self.members:
                member.worker.beat()
        return losses_K2, cut_K22

    def _coefficients(self, updates: int) -> Tensor:
        """Those of all updates of a step, in one transfer to the device: (U, G, C, K)."""
        rows = [member.coefficients(self._optimizer, updates) for member in self.members]
        like = self._stack.weights_KP
        return torch.tensor(rows, dtype=like.dtype).permute(1, 2, 3, 0).to(like.device)

    def _evaluate(self) -> Tallies:
        """What the task says of the validation samples, in the same parts as alone."""
        validation = self._data.validation
        at = torch.arange(len(validation), device=validation.home)
        parts = at.tensor_split(-(-len(at) // self._size))
        found = add_up(self._passes.evaluate(self._stack, part) for part in parts)
        return {f"val/{name}": tally for name, tally in found.items()}


@torch.no_grad()
def clip(g_KP: Tensor, most_K: Tensor) -> Tensor:
    """Clip each trial's gradient by its norm, in place; tallies of norm and clipped share.

    Source and small number: trainables.optim.clipping.

    Args:
        most_K: infinity for a trial that clips nothing.
    """
    norm_K = torch.linalg.vector_norm(g_KP, dim=1)
    ratio_K = (most_K / (norm_K + 1e-6)).clamp(max=1.0)
    g_KP.mul_(torch.where(most_K.isinf(), 1.0, ratio_K)[:, None])
    known_K = norm_K.isfinite()
    values_K2 = torch.stack([norm_K, (norm_K > most_K).to(norm_K)], dim=1).double()
    pairs_K22 = torch.stack([values_K2, torch.ones_like(values_K2)], dim=2)
    return torch.where(known_K[:, None, None], pairs_K22, 0.0)


def _own(cuts: Tensor | None, row: int, member: Member) -> Tensor | None:
    clips = member.worker.training.clip is not None
    return cuts[row] if cuts is not None and clips else None
