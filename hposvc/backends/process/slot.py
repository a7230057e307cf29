"""A slot without Ray: ranks that carry out one order at a time, and are replaced if they break."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hposvc.backends.process.rank_commands import Launcher
from hposvc.backends.process.rank_group import Exited, RankGroup
from hposvc.backends.rank_deaths import RankDeaths, RankExit
from hposvc.errors import OutOfReach
from hposvc.spec.sections import Resources
from trainables.contract import (
    Assignment,
    Message,
    Order,
    OrderMessage,
    Outcome,
    PreemptionStarted,
    Ready,
    Report,
    SlotConfig,
)
from trainables.runtime.coordinator import Switchboard


@dataclass(eq=False)
class ProcessSlot:
    """Ranks that stay warm from order to order.

    Args:
        name: SWEEP/slot-n; each new group of ranks adds a number.
        post: called from other threads with what the owner then gives to `handle`.
    """

    name: str
    resources: Resources
    launcher: Launcher
    post: Callable[[RankGroup, Message | Exited], None]
    order: Order | None = None
    ready: bool = False  # the ranks are up
    _group: RankGroup | None = None
    _groups: int = 0  # launched so far
    _leaving: str = ""  # why the order is to end early; empty: it is not
    _has_reported: bool = False  # the order
    _deaths: RankDeaths | None = None
    _switchboard: Switchboard = field(init=False)

    def __post_init__(self) -> None:
        self._switchboard = Switchboard(self.launcher.host())

    @property
    def folder(self) -> Path:
        """The folder of the logs; there must be ranks."""
        assert self._group is not None
        return self._group.config.folder

    def prepare(self, config: SlotConfig) -> bool:
        """Start ranks, unless there are some with this configuration; the slot must be idle.

        Returns:
            Whether ranks were started.

        Raises:
            OutOfReach: the Slurm job has too few tasks.
        """
        if self._group is not None and self._group.config == config:
            return False
        self.drop()
        if self._deaths is None or self._deaths.folder != config.folder:
            self._deaths = RankDeaths(config.folder)
        self._groups += 1
        self._group = RankGroup(
            f"{self.name}-{self._groups}",
            config,
            self.launcher,
            self._switchboard,
            self.post,
            self.resources.gpus_per_worker,
            self.resources.cpus_per_worker,
        )
        self._group.launch()
        return True

    def carry_out(self, assignment: Assignment) -> None:
        """Start an order; the slot must be ready and idle."""
        assert self._group is not None
        self.order, self._has_reported = assignment.order, False
        self._group.coordinator.carry_out(assignment)

    def decide(self, order: int, verdict: Literal["continue", "stop"]) -> None:
        """Pass a decision about an order on to the ranks, if they have it."""
        if self._group is not None:
            self._group.coordinator.decide(order, verdict)

    def leave(self, why: str) -> None:
        """End the order early, with a checkpoint if the trainable can; there must be an order."""
        self._leaving = why
        if self._group is not None:
            self._group.leave(why)

    def handle(self, group: RankGroup, message: Message | Exited) -> OrderMessage | None:
        """Take what was posted, and return what it says of the order; None: nothing.

        Raises:
            OutOfReach: a rank could not start.
        """
        if group is not self._group:
            return None
        match message:
            case Ready():
                self.ready = True
                return None
            case PreemptionStarted():
                self._leaving = message.why
                return None
            case Exited():
                return self._lose_rank(group, message)
            case Outcome():
                self.order = None
                if not message.clean or message.leaks or self._leaving:
                    self.drop()
        self._has_reported |= isinstance(message, Report)
        return message

    def _lose_rank(self, group: RankGroup, exited: Exited) -> Outcome | None:
        order, started, leaving = self.order, self.ready, self._leaving
        self.drop()
        if not started:
            raise OutOfReach(f"a rank could not start: {exited.why}")
        if order is None:
            return None
        if leaving:
            return Outcome(order.id, "preempt", leaving)
        assert self._deaths is not None
        left = RankExit(exited.rank, group.config.world_size, exited.why, exited.code)
        return self._deaths.outcome(order, left, self._has_reported)

    def drop(self) -> None:
        """Kill the ranks with what they are doing, and return when all are gone."""
        group, self._group = self._group, None
        self.order, self.ready, self._leaving = None, False, ""
        if group is not None:
            group.kill()

    def close(self) -> None:
        """Kill the ranks, and accept no others."""
        self.drop()
        self._switchboard.close()
