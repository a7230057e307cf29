"""A scheduler, a searcher, a sink and an engine of one file each are known to all that must know.

If these fail, a plug-in is forgotten somewhere: its trials are said to wait for what they do not
wait for, its forecast is of another one, or what it wrote is left behind.
"""

import json
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from command_line import SPEC
from rich.console import Console
from simulated_sweeps import make_spec
from sweep_stories import begun

from hposvc.api import Sweeps
from hposvc.errors import SpecError
from hposvc.journal.home import Home
from hposvc.open_sweep import OpenSweep
from hposvc.spec.engines import ENGINES, EngineType
from hposvc.spec.json_schema import build, find
from hposvc.spec.registry import SCHEDULERS, PlugIn
from hposvc.spec.sinks import SINKS, SinkType
from hposvc.state.prospects import pace_of
from hposvc.views.result import tracked_files
from hposvc.views.waits import describe_waits
from searchers.methods import METHODS

DIGITS = Path(__file__).parents[3] / "examples" / "digits.yaml"
SWEEP = {**SPEC, "search": "random", "trials": {"max": 12}, "tracking": {"send_to": []}}
SWEEP |= {"parameters": {"x": {"min": 0.0, "max": 6.0}}, "fidelity": {"max": 3}}
SCHEDULER = '''
from dataclasses import dataclass
from typing import ClassVar

from hposvc.schedulers.resumable import Resumable
from hposvc.schedulers.scheduler import Decision


@dataclass
class Bounded(Resumable):
    bound: float = 0.0

    def judge(self, report):
        detail = f"loss {report.loss:.3g}, bound {self.bound:g}"
        return Decision("stop" if report.loss > self.bound else "continue", "bound", detail)


@dataclass(frozen=True)
class Bound:
    bound: float = 4.0
    any_length: ClassVar[bool] = True
    ends_steadily: ClassVar[bool] = True
    __pydantic_config__ = {"extra": "forbid"}

    def scheduler(self, plan):
        steps = () if plan.until is None else tuple(range(plan.first, plan.until))
        return Bounded(plan.until, steps, bound=self.bound)

    def explain_no_copies(self, plan, steps):
        return f"none of {len(steps)} trials copies another, as a bound does not ask for it"


@dataclass(frozen=True)
class Learned(Bound):
    """Needs a model, as its moves cost much; a simulation makes those of `bound`."""

    needs_model: ClassVar[bool] = True
    ends_steadily: ClassVar[bool] = False
    simulated_as: ClassVar[str] = "bound"

    def scheduler(self, plan):
        raise AssertionError("too dear for a forecast")
'''
SEARCHER = """
from dataclasses import dataclass
from typing import ClassVar

from searchers.pace import Pace
from searchers.searcher import Proposal


@dataclass(frozen=True)
class Evenly:
    most: int = 9
    uses_results: ClassVar[bool] = False
    pace: ClassVar[Pace] = Pace(2.0, 1.0, 0.5, 0.9)
    __pydantic_config__ = {"extra": "forbid"}

    @property
    def must_repeat(self):
        return self.most > 99

    def points(self, space):
        return ({"x": 6.0 * place / self.most} for place in range(self.most))

    def suggest(self, space, history, n, rng):
        left = list(self.points(space))[len(history) :]
        return [Proposal({**space.sample(rng), **point}) for point in left[:n]]
"""
SINK = '''
from hposvc.tracking.sink import Sink


class States(Sink):
    """Keeps the state of each trial in a file."""

    def __init__(self, setting):
        self.folder = setting.folder / "states"

    def open(self):
        self.folder.mkdir(parents=True, exist_ok=True)

    def send(self, batches):
        for batch in batches:
            for run, entry in batch.entries.items():
                if run and entry.tags:
                    (self.folder / f"{run}.txt").write_text(entry.tags["hposvc.state"])
'''
ENGINE = '''
from hposvc.backends.simulate import Simulation


class Twice(Simulation):
    """Takes twice the time of the curve."""

    def _call(self, order, step):
        values, seconds = super()._call(order, step)
        return values, 2 * seconds
'''


@pytest.fixture
def plug_in(tmp_path, monkeypatch):
    """Return a function that writes a file with a plug-in beside the sweep's code."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return tmp_path / f"{name}.py"

    return write


@pytest.fixture
def walk(hposvc, spec, tmp_path):
    """Return a function that takes a sweep through the verbs, and returns what they answer."""

    def go(**sections):
        path = spec(**{**SWEEP, **sections})
        answers = {"plan": hposvc("plan", path, "--seconds-per-step", "2", "-o", "json")}
        answers["run"] = hposvc("run", path, "--id", "new")
        answers["audit"] = hposvc("audit", "new", "t0001", "-o", "json")
        answers["why"] = hposvc("why", "new")
        answers["status"] = hposvc("status", "new")
        report = tmp_path / "report.html"
        answers["report"] = hposvc("report", "new", "--out", report)
        assert {verb: answer.err for verb, answer in answers.items() if answer.code} == {}
        return answers, report.read_text()

    return go


def waits(**sections):
    """Return what a sweep with paused trials, of which one runs, waits for."""
    story = begun(**{"trials": {"max": 5}, **sections})
    story.begin("t0001", 1)
    story.state.trials.counts["PAUSED"], story.state.closed = 3, "trials"
    return describe_waits(story.state, story.time)


def test_a_new_scheduler(plug_in, walk, hposvc, tmp_path, monkeypatch):
    plug_in("bounds", SCHEDULER)
    monkeypatch.setitem(SCHEDULERS.classes, "bound", "bounds:Bound")
    monkeypatch.setitem(SCHEDULERS.classes, "learned", "bounds:Learned")
    answers, report = walk(scheduler={"type": "bound", "bound": 4.0})
    plan = answers["plan"].data
    assert plan["trials"]["expected"] == pytest.approx(12)
    assert plan["steps"]["expected"] < 36
    assert "bound 4" in answers["audit"].out
    assert "none of 12 trials copies another" in answers["why"].out + answers["status"].out
    assert "bound" in report
    rest = "the rest of a rung, for 3 paused trials"
    assert rest not in waits(scheduler="bound")
    assert rest in waits(scheduler="learned", search="gp")
    assert make_spec(scheduler="bound", fidelity=None).last_step == 1
    with pytest.raises(SpecError, match="is random, but scheduler learned is for methods with a m"):
        make_spec(scheduler="learned", search="random")
    changed = ("--set", "scheduler=learned", "--set", "search=gp")
    planned = hposvc("plan", tmp_path / "spec.yaml", *changed, "-o", "json")
    assert planned.data["trials"]["expected"] == pytest.approx(12)
    assert "bound" in json.dumps(find(build({}), "scheduler.type"))
    assert hposvc("memory", DIGITS, "--set", "scheduler=bound", "-o", "json").code == 0


def test_a_new_searcher(plug_in, walk, hposvc, monkeypatch):
    file = plug_in("evenly", SEARCHER)
    monkeypatch.setitem(METHODS, "evenly", "evenly:Evenly")
    answers, report = walk(search="evenly")
    assert answers["plan"].data["trials"]["expected"] == 9
    assert "search evenly" in answers["audit"].out
    assert "evenly" in report
    pace = pace_of(PlugIn("evenly"))
    assert (pace.improvements, pace) == (2.0, pace_of(PlugIn(f"{file}:Evenly")))
    assert "20 more trials" in answers["why"].out
    with pytest.raises(SpecError, match="evenly, but scheduler bohb is for methods with a model"):
        make_spec(scheduler="bohb", search="evenly")
    with pytest.raises(SpecError, match=r"search\.repeats: is true, but with 2 metrics"):
        make_spec(
            search={"method": "evenly", "most": 100},
            metric=None,
            metrics=[{"name": name, "goal": "minimize"} for name in ("loss", "ms")],
        )
    assert "evenly" in json.dumps(find(build({}), "search.method"))
    assert hposvc("memory", DIGITS, "--set", "search=evenly", "-o", "json").code == 0


def test_a_new_sink(plug_in, walk, hposvc, tmp_path, monkeypatch):
    file = plug_in("states", SINK)
    answers, report = walk(tracking={"send_to": [f"{file}:States"]})
    folder = tmp_path / "home" / "sweeps" / "new"
    assert {path.stem for path in folder.glob("states/*")} >= {"t0001", "t0012"}
    assert answers["plan"].data["trials"]["expected"] == pytest.approx(12)
    assert "t0001" in report
    row = SinkType("states:States", "states", path="states", viewer="States", view="ls {path}")
    monkeypatch.setitem(SINKS, "states", replace(row, keys=("uri",)))
    assert f"States      ls {folder / 'states'}" in shown(tmp_path / "home")
    with pytest.raises(SpecError, match="is for MLflow or states, which is not in send_to"):
        make_spec(tracking={"send_to": ["json_lines"], "uri": "http://host"})
    accepted = make_spec(tracking={"send_to": ["states"], "uri": "http://host"})
    assert accepted.tracking.send_to == ("states",)
    assert hposvc("memory", DIGITS, "--set", "tracking.send_to=[states]", "-o", "json").code == 0
    assert hposvc("rm", "new", "--yes").code == 0
    assert not folder.exists()


def shown(path):
    """Return how the result of the sweep says that its files are opened."""
    home, console = Home.of(path, {}), Console(file=StringIO(), width=500)
    console.print(*tracked_files(OpenSweep(Sweeps.open(path), "new").record(), home))
    return console.file.getvalue()


def test_a_new_engine(plug_in, walk, hposvc, monkeypatch):
    plug_in("twice", ENGINE)
    traits = EngineType("twice:Twice", simulated=True, in_process=True, elastic=False)
    monkeypatch.setitem(ENGINES, "twice", traits)
    engine = {"type": "twice", "curve": "curves:valley"}
    answers, report = walk(engine=engine)
    assert answers["plan"].data["trials"]["expected"] == pytest.approx(12)
    assert not [
        saving for saving in answers["plan"].data["savings"] if "at once" in saving["change"]
    ]
    assert "t0001" in report
    assert hposvc("status", "new", "-o", "json").data["elapsed_s"] == pytest.approx(2.0 * 36)
    rest = "the rest of a rung, for 3 paused trials"
    assert rest in waits(engine=engine, scheduler="hyperband")
    assert "twice" in find(build({}), "engine.type")["enum"]
    with pytest.raises(SpecError, match="is a span, but engine twice cannot change"):
        make_spec(engine=engine, resources={"workers": {"min": 1, "max": 2}})
    with pytest.raises(SpecError, match="is for type simulate or twice, and type is local"):
        make_spec(engine={"type": "local", "curve": "curves:valley"})
    monkeypatch.setitem(ENGINES, "own", EngineType("twice:Twice", in_process=True))
    assert hposvc("memory", DIGITS, "--set", "engine=own", "-o", "json").code == 0
