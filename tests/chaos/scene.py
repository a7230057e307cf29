"""What a round acts on: a sweep, its driver, and what it was told to do."""

import json
import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from disks import Disk
from ruamel.yaml import YAML
from services import Server
from terminal import Command, Terminal, title, until

from hposvc import api
from hposvc.events import Event
from hposvc.journal.home import Home
from hposvc.journal.journal import Journal
from hposvc.open_sweep import Record

RESUMES = 6  # drivers of a round that end by themselves; more means that it never does


@dataclass(frozen=True)
class End:
    """How a driver ended by itself."""

    code: int
    said: str
    seq: int  # of the last event in the journal then


@dataclass
class Scene:
    """A sweep of a home, under way."""

    terminal: Terminal
    sweep: str
    place: Path  # the round's own folder: diaries, and what is armed
    rng: random.Random
    spec: dict[str, Any]
    trials: int
    open: ExitStack  # what ends with the round
    variables: dict[str, str] = field(default_factory=dict)  # of its commands
    driver: Command = field(init=False)
    ends: list[End] = field(default_factory=list)  # of drivers, by themselves
    patience_s: float = 60.0  # of drivers with a journal that does not answer
    over: bool = False  # the sweep has ended, and MLflow was told
    shared: bool = False  # somebody else keeps Ray up
    kills: int = 0  # of processes with work that was not kept
    servers: dict[str, Server] = field(default_factory=dict)  # that it needs, by injection
    disks: dict[str, Disk] = field(default_factory=dict)  # that it writes to, by injection
    nodes: list[int] = field(default_factory=list)  # of a cluster: their processes
    hit: set[str] = field(default_factory=set)  # injections that found what they were for
    torn: set[str] = field(default_factory=set)  # checkpoints that were spoilt
    set_back_at: float = 0.0  # monotonic; before it, the journal may have lost what it had
    repairs: list[Callable[[], None]] = field(default_factory=list)  # before it is resumed

    @property
    def home(self) -> Home:
        return Home.of(self.terminal.home, self.variables)

    @property
    def journal(self) -> Journal:
        return self.home.journal()

    @property
    def codes(self) -> list[int]:
        """What drivers ended with by themselves."""
        return [end.code for end in self.ends]

    def events(self) -> list[Event]:
        return [event for _, event in self.journal.read(self.sweep)]

    def record(self) -> Record:
        """The sweep as its journal has it now."""
        return api.load(api.Sweeps(self.home, self.journal), self.sweep)

    def run(self) -> None:
        """Begin the sweep."""
        file = self.place / "spec.yaml"
        YAML().dump(self.spec, file)
        self.driver = self.start("run", str(file), "--id", self.sweep)

    def resume(self) -> None:
        """Go on with it."""
        self.driver = self.start("resume", self.sweep)

    def start(self, *arguments: str) -> Command:
        """Begin `hposvc ARGUMENTS` as part of the round."""
        settings = {
            "variables": self.variables,
            "place": str(self.place),
            "patience_s": self.patience_s,
        }
        return self.terminal.start_python("-m", "acting", json.dumps(settings), *arguments)

    @property
    def alive(self) -> bool:
        """Whether a driver is at work."""
        return self.driver.process.poll() is None

    def reach(self, seq: int) -> bool:
        """Wait until the journal holds so many events; False if the driver ended before."""
        until(lambda: not self.alive or self.last() >= seq, f"event {seq} of {self.sweep}")
        return self.alive

    def last(self) -> int:
        """The number of the sweep's last event in the journal."""
        if not (self.terminal.home / "hposvc.db").exists() and "HPOSVC_DB" not in self.variables:
            return 0
        return self.journal.last(self.sweep)

    def wait(self, condition: Callable[[], object], what: str) -> bool:
        """Wait for a condition, which may last a moment only; False if the driver ended before."""
        came = False

        def look() -> bool:
            nonlocal came
            came = bool(condition())
            return came or not self.alive

        until(look, what)
        return came

    def said(self) -> str:
        """What all commands of the home have said so far."""
        files = (self.terminal.home / "outputs").glob("*.err")
        return "".join(file.read_text() for file in files)

    def ranks(self) -> list[psutil.Process]:
        """The processes that train this sweep."""
        slots = f"ray::{self.sweep}/slot-"
        return [each for each in self.terminal.processes() if title(each).startswith(slots)]

    def busy_ranks(self) -> list[psutil.Process]:
        """Those of slots whose rank 0 is amid a step, as its diary says."""
        amid = set()
        for file in self.place.glob("diary-*.jsonl"):
            said = file.read_text().splitlines()
            last = json.loads(said[-1]) if said else {}  # it may just have been opened
            if last.get("what") == "begun":
                amid.add(last["pid"])
        ranks = {each: slot_of(each) for each in self.ranks()}
        slots = {slot for each, slot in ranks.items() if each.pid in amid}
        return [each for each, slot in ranks.items() if slot in slots]

    def end(self) -> None:
        """Let the sweep come to its end, resumed as often as its driver gives up."""
        while self.go_on():
            pass

    def go_on(self) -> bool:
        """Wait for the driver's end, and start another if there is anything left to do.

        Raises:
            TimeoutError: there were too many, or the last one does not end.
        """
        if self.over:
            return False
        code, said = self.driver.end()
        for repair in self.repairs:
            repair()
        self.repairs.clear()
        self.ends.append(End(code, said, self.last()))
        if code in (0, 3) and self.record().behind == 0:
            self.over = True
            return False
        if len(self.ends) == RESUMES:
            raise TimeoutError(f"{self.sweep}: not over after {self.codes}: {said}")
        self.resume()
        return True


def slot_of(rank: psutil.Process) -> str:
    """The name of its slot; empty once it is gone."""
    return "/".join(title(rank).split("/")[:2])


def clear(scene: Scene) -> None:
    """Kill what a round that broke off may have left, so that the next one has the machine."""
    if hasattr(scene, "driver") and scene.alive:
        scene.driver.kill()
    scene.terminal.sweep_up()
