"""A rank of a slot: a process that runs the user's code on its main thread, order after order.

Ranks are equal. The ranks of a group share a store that rank 0 keeps open from order to order; each
order gets a process group. `serve` does not return while the slot lives, so whoever waits for it
learns of the rank's death at once, even between orders.
"""

import gc
import os
import platform
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from trainables import environment, load
from trainables.monitoring import device, energy
from trainables.programs.rendezvous import RankAddress
from trainables.runtime import process_state
from trainables.runtime.assignment import (
    Assignment,
    SlotConfig,
    import_trainable,
    log_file,
)
from trainables.runtime.heartbeat import Heartbeat, LivenessSignals
from trainables.runtime.last_words import note_exits
from trainables.runtime.links import CurrentOrder, carry_out_linked
from trainables.runtime.memory_limit import watch_memory
from trainables.runtime.output import redirect_output
from trainables.runtime.preemption import SigtermHandler
from trainables.runtime.proctitle import task_span
from trainables.runtime.wire import (
    Beat,
    Call,
    CoordinatorConnection,
    Hello,
    PreemptionNotice,
    connect,
    own_host,
)

if TYPE_CHECKING:
    from trainables.parallel.group import RankStore

NCCL_RECORD = "TORCH_FR_DUMP_TEMP_FILE"  # the file for NCCL's record of collectives (torch 2.13)


class Rank:
    """A process of a slot; it carries out one order after the other."""

    def __init__(self, rank: int, config: SlotConfig, shown_as: str = "") -> None:
        self._rank, self._config, self._shown_as = rank, config, shown_as
        sys.path[:0] = [folder for folder in config.path if folder not in sys.path]

    def __repr__(self) -> str:
        """Return what Ray's dashboard shows of the actor; Ray asks once, when it is created."""
        return self._shown_as

    def serve(self, call: Call) -> None:
        """Carry out the coordinator's orders until it is gone."""
        config, rank = self._config, self._rank
        process_state.become_subreaper()
        note_exits()
        watchers = watch_memory(config.memory)
        own_log = config.folder / "logs" / "slots" / f"{Path(call.slot).name}-{rank}.log"
        if config.inherited is not None:
            config.inherited.take_over()
        config.enter()
        sources = load.Sources(config.code)
        sources.check()
        os.environ.update({**config.variables, **config.secrets})
        if config.distributed:  # modules may read these when they are imported
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(config.world_size), LOCAL_RANK="0")
        if config.command is None:
            environment.keep_freed_memory()
            if config.gpu:
                os.environ.update(environment.gpu_variables(os.environ, config.gpu_share))
                # NCCL appends the rank to the name.
                os.environ.setdefault(NCCL_RECORD, f"{own_log.with_suffix('')}-nccl-")
            if config.variants is None:  # otherwise its order says what to import
                import_trainable(config, own_log)
        lanes = range(config.training.orders_at_once)
        connections = [CoordinatorConnection(connect(call)) for _ in lanes]
        stores = [self._join_slot(each, call.slot, lane) for lane, each in enumerate(connections)]
        gc.collect()
        gc.freeze()  # objects of imports stay anyway; scanning them again takes 0.1 s at times
        with suppress(EOFError, OSError):  # the coordinator is gone
            if len(lanes) > 1:
                from trainables.sharing.serving import Lane, Lanes

                places = list(map(Lane, connections, stores))
                Lanes(rank, config, places, own_log, watchers).serve()
            name = f"{call.slot}/rank-{rank}"
            self._serve_orders(connections[0], stores[0], name, sources, own_log, watchers)

    def _serve_orders(
        self,
        coordinator: CoordinatorConnection,
        rank_store: "RankStore | None",
        name: str,
        sources: load.Sources,
        own_log: Path,
        watchers: Sequence[threading.Thread],
    ) -> NoReturn:
        """Carry out one order after the other; EOFError or OSError: the coordinator is gone."""
        config, rank = self._config, self._rank
        works = config.command is None
        meter = energy.meter(config.gpu, config.gpu_share)

        def beat(order: int) -> None:
            coordinator.send(Beat(order, meter.kwh(order)))

        heartbeat = Heartbeat(config.stall_s, beat, works, watchers)
        sigterm = SigtermHandler(lambda order: coordinator.send(PreemptionNotice(order)))
        while True:
            assignment: Assignment = coordinator.receive()
            order = assignment.order
            if config.command is not None:  # each order's process reads the source files again
                sources.check()
            log = log_file(config.folder, order.trial, order.id, rank)
            signals = LivenessSignals()
            with (
                sigterm.during(order.id),
                redirect_output(log, config.secrets.values()) as file,
                task_span(name, f"{order.trial}/order-{order.id}"),
                heartbeat.during(order.id, signals, file),
            ):
                current = CurrentOrder(coordinator, assignment, signals, sigterm.notice)
                outcome = carry_out_linked(config, rank, current, rank_store)
            coordinator.send(outcome)

    def _join_slot(
        self, coordinator: CoordinatorConnection, slot: str, lane: int = 0
    ) -> "RankStore | None":
        """Send the hello, and open or join the ranks' store if there are several."""
        world_size, gpu = self._config.world_size, self._config.gpu
        host = own_host(coordinator.connection)
        unmeasured = energy.meter(gpu, self._config.gpu_share).unmeasured
        here = (device.model(gpu), platform.node(), lane, unmeasured)
        if world_size == 1:
            coordinator.send(Hello(slot, 0, (host, 0), *here))
            coordinator.receive()
            return None
        from trainables.parallel.group import RankStore, set_gloo_interface

        set_gloo_interface(host)
        if self._rank == 0:
            rank_store = RankStore.open(host, world_size, gpu, self._config.stall_s)
            coordinator.send(Hello(slot, 0, (host, rank_store.port), *here))
            coordinator.receive()
        else:
            coordinator.send(Hello(slot, self._rank, None, *here))
            master, port = coordinator.receive()
            rank_store = RankStore.join(
                master, port, self._rank, world_size, gpu, self._config.stall_s
            )
        rank_store.exchange_addresses(RankAddress.here(host))
        return rank_store
