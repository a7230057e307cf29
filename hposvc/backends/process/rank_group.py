"""Ranks without Ray: processes that stay warm from order to order, and their coordinator."""

import os
import pickle
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import IO

from hposvc.backends.process.rank_commands import Launcher, SlurmLauncher
from hposvc.backends.process.rank_process import NOTICE, SlotOfRank
from trainables.contract import Message, SlotConfig, shortened
from trainables.runtime.coordinator import Coordinator, Switchboard

GONE_S = 5.0  # seconds for srun's ranks to be gone, before srun is told to end them
TAIL = 4096  # bytes of a process's output that are read for its last line
KILLED_S = 60.0  # and then, before we stop waiting: Slurm kills them after its KillWait
# From the ranks: the token is that of who started them.
WITHHELD = ("HPOSVC_TOKEN", "HPOSVC_TOKEN_FILE")


@dataclass(frozen=True)
class Exited:
    """A process of the group has ended, with this reason."""

    why: str
    rank: int = 0
    code: int | None = None  # -N by signal N; None: that of srun, which stands for several ranks


@dataclass(eq=False)
class RankGroup:
    """Ranks that carry out one order after the other, until they are killed.

    Args:
        post: called from other threads with each message of the coordinator, and with the exits of
            processes.
        gpus: of each rank; and `cpus` likewise.
    """

    name: str
    config: SlotConfig
    launcher: Launcher
    switchboard: Switchboard
    post: Callable[["RankGroup", Message | Exited], None]
    gpus: float
    cpus: float
    coordinator: Coordinator = field(init=False)
    _processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    _output: IO[bytes] = field(default_factory=tempfile.TemporaryFile)  # of the processes

    def __post_init__(self) -> None:
        post_message = partial(self.post, self)
        self.coordinator = Coordinator(self.config.world_size, post_message, self.config.stall_s)

    def launch(self) -> None:
        """Start the ranks, which call their coordinator; `Ready` is posted once all are up.

        Raises:
            OutOfReach: the Slurm job has too few tasks.
        """
        self.switchboard.connect(self.name, self.coordinator)
        slot = SlotOfRank(self.config, self.switchboard.call(self.name), self.gpus, self.cpus)
        variables = {name: text for name, text in os.environ.items() if name not in WITHHELD}
        for command in self.launcher.commands(self.config.world_size):
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env=variables,
                start_new_session=True,  # Ctrl-C must reach only their owner
            )
            self._processes.append(process)
            self._write(process, pickle.dumps(slot))
            threading.Thread(target=self._watch, args=(process,), daemon=True).start()

    def leave(self, why: str) -> None:
        """End the order at its next report, or before that where its trainable can; save its state.

        There must be an order: without one, a notice ends the ranks at once.
        """
        self.coordinator.leave(why)
        for process in self._processes:
            self._write(process, NOTICE)

    def kill(self) -> None:
        """Kill the ranks and their children, and return when all are gone."""
        self.switchboard.disconnect(self.name)
        for process in self._processes:
            if process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()  # each rank kills itself and its children
            if not isinstance(self.launcher, SlurmLauncher):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        for process in self._processes:
            try:
                process.wait(GONE_S)
            except subprocess.TimeoutExpired:
                process.terminate()  # srun has Slurm kill its tasks
                with suppress(subprocess.TimeoutExpired):
                    process.wait(KILLED_S)
        self._output.close()

    def _write(self, process: "subprocess.Popen[bytes]", content: bytes) -> None:
        assert process.stdin is not None
        with suppress(OSError, ValueError):  # it has exited, which is posted
            process.stdin.write(content)
            process.stdin.flush()

    def _watch(self, process: "subprocess.Popen[bytes]") -> None:
        code = process.wait()
        why = self._describe(process, code)
        if isinstance(self.launcher, SlurmLauncher):
            self.post(self, Exited(why))
        else:
            self.post(self, Exited(why, self._processes.index(process), code))

    def _describe(self, process: "subprocess.Popen[bytes]", code: int) -> str:
        """Return why a process ended: its signal or exit code, and the last line that it wrote."""
        who = (
            "srun"
            if isinstance(self.launcher, SlurmLauncher)
            else (f"rank {self._processes.index(process)}")
        )
        how = f"exited with code {code}"
        if code < 0:
            killed = signal.Signals(-code).name
            how = f"was killed by {killed}" + (" (out of memory?)" if killed == "SIGKILL" else "")
        with suppress(OSError, ValueError):  # closed: the group is being killed
            output = self._output.fileno()
            text = os.pread(output, TAIL, max(0, os.fstat(output).st_size - TAIL))
            if lines := text.decode(errors="replace").strip().splitlines():
                return f"{who} {how}: {shortened(lines[-1].strip())}"
        return f"{who} {how}"
