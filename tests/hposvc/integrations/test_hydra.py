"""The Hydra sweeper, on the real Hydra: ranges, whole sweeps by command, and its page in docs."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pages
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

import hposvc
from hposvc.errors import NO_VALUE, USAGE, SpecError
from hposvc.integrations.hydra import Options, _declare
from hposvc.tracking.hydra_results import Multirun

ROOT = Path(__file__).parents[3]
BLOCKS = pages.fenced(pages.read("how-to/hydra.md"))
SCRIPT = """
import time
from pathlib import Path

import hydra
from omegaconf import OmegaConf

import hposvc

OmegaConf.register_new_resolver("twice", lambda x: 2 * x)


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def train(config):
    if config.mode == "pair":
        return config.x, -config.x
    if config.mode == "waits":
        while config.x > 1 and not Path("gate").exists():
            time.sleep(0.05)
        return config.x
    if config.mode == "nothing":
        return None
    if config.mode == "reports":
        hposvc.report({"value": config.x})
        return 99.0
    if config.mode == "fails":
        raise ArithmeticError("no such number")
    assert config.double == 2 * config.x
    return {"small": 0.0, "large": 1.0}[config.model.size] + config.x


train()
"""
CONFIG = "defaults: [model: small, _self_]\nx: 1.0\nmode: value\ndouble: ${twice:${x}}\n"


def write_application(folder: Path) -> Path:
    """Write an application with a config group, and return its folder."""
    (folder / "train.py").write_text(SCRIPT)
    models = folder / "conf" / "model"
    models.mkdir(parents=True)
    for size in ("small", "large"):
        (models / f"{size}.yaml").write_text(f"size: {size}\n")
    (folder / "conf" / "config.yaml").write_text(CONFIG)
    return folder


@pytest.fixture
def application(tmp_path: Path) -> Path:
    """Return the folder of an application with a config group."""
    return write_application(tmp_path)


def environment(folder: Path) -> dict[str, str]:
    """Return variables with which the sweeps are in the folder's `home`."""
    paths = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    own = {"HPOSVC_HOME": str(folder / "home"), "PYTHONPATH": paths}
    return {name: text for name, text in os.environ.items() if name != "HPOSVC_DB"} | own


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run Python in a folder, whose `home` has the sweeps."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=240,
        check=False,
        env=environment(folder),
    )


def sweep(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run(folder, "train.py", "-m", "hydra/sweeper=hposvc", *arguments)


def results(folder: Path) -> dict:
    (file,) = folder.glob("multirun/*/*/optimization_results.yaml")
    return OmegaConf.to_container(OmegaConf.load(file))


@pytest.mark.parametrize(
    ("text", "declared"),
    [
        ("interval(0, 1)", {"min": 0.0, "max": 1.0, "type": "float", "log": False}),
        ("tag(log, interval(1, 8))", {"min": 1.0, "max": 8.0, "type": "float", "log": True}),
        ("int(interval(1, 8))", {"min": 1, "max": 8, "type": "int", "log": False}),
        ("tag(log, int(interval(1, 8)))", {"min": 1, "max": 8, "type": "int", "log": True}),
        ("range(1, 9, step=3)", {"min": 1, "max": 7, "step": 3, "type": "int"}),
        ("range(3)", {"min": 0, "max": 3, "step": 1, "type": "int"}),
        ("range(0.0, 1.0, step=0.1)", {"min": 0.0, "max": 1.0, "step": 0.1, "type": "float"}),
        ("1,2,4", {"values": [1, 2, 4]}),
        ("choice(true, false)", {"values": [True, False]}),
        ("choice(sgd, 'a, b', [1, 2])", {"values": ["sgd", "'a, b'", "[1,2]"]}),
    ],
)
def test_a_range_is_declared_as_hydras_optuna_sweeper_reads_it(text, declared):
    (override,) = OverridesParser.create().parse_overrides([f"x={text}"])
    assert _declare(override) == declared


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        ("a,'b, c',[1, d],null", ["a", "b, c", [1, "d"], None]),
        ("true,'true',1,'1',''", [True, "true", 1, "1", ""]),
        (r"a\,b,a\ b,'it\'s','${y}','a=b'", ["a,b", "a b", "it's", "${y}", "a=b"]),
        (r"'ends in \\','\\\'','\\n'", ["ends in \\", r"\'", r"\\n"]),
        ("{a: 1, b: 'x y'},[{c: null}]", [{"a": 1, "b": "x y"}, [{"c": None}]]),
    ],
)
def test_a_choice_is_recorded_so_that_hydra_reads_it_as_it_was(texts, values):
    (override,) = OverridesParser.create().parse_overrides([f"+x={texts}"])
    multirun = Multirun(Path(), {"x": "+x"})
    recorded = _declare(override)["values"]
    assert [multirun.params({"x": value}) for value in recorded] == [{"+x": v} for v in values]


def test_a_tag_that_says_nothing_here_is_refused():
    (override,) = OverridesParser.create().parse_overrides(["x=tag(normal, interval(0, 1))"])
    with pytest.raises(SpecError, match=r"x: has the tag normal; there is only `log`"):
        _declare(override)


def test_names_and_directions_go_in_pairs():
    with pytest.raises(SpecError, match="has 1 names and direction 2"):
        _ = Options(direction=["minimize", "maximize"]).metrics


@pytest.mark.long
def test_an_unchanged_application_is_swept_at_once_and_recorded(application):
    jobs = ("hydra.sweeper.n_trials=4", "hydra.sweeper.n_jobs=2", "hydra.sweeper.seed=1")
    ended = sweep(application, *jobs, "+hydra.sweeper.params.x='interval(0, 1)'", "model=glob(*)")
    assert ended.returncode == 0, ended.stderr
    found = results(application)
    params, value = found["best_evaluated_params"], found["best_evaluated_result"]
    assert value == {"small": 0.0, "large": 1.0}[params["model"]] + params["x"]
    assert found["name"] == "hposvc"
    handle = hposvc.load("last", application / "home")
    assert handle.id == found["sweep"]
    assert handle.result().best.value == value
    assert handle.status().trials.completed == 4
    (folder,) = application.glob("multirun/*/*/multirun.yaml")
    for number in range(4):
        overrides = folder.parent / str(number) / ".hydra" / "overrides.yaml"
        assert len(OmegaConf.load(overrides)) == 2
    why = run(application, "-m", "hposvc", "why", "last")
    assert "The best configuration" in why.stdout


@pytest.mark.long
def test_shares_of_the_config_add_up_in_each_job(application):
    config = application / "conf" / "config.yaml"
    config.write_text(f"{CONFIG}mix: {{web: 0.5, code: 0.5}}\n")
    shares = "+hydra.sweeper.params.mix={shares: [web, code], max: {code: 0.3}}"
    jobs = ("hydra.sweeper.n_trials=3", "hydra.sweeper.search=random")
    ended = sweep(application, *jobs, shares)
    assert ended.returncode == 0, ended.stderr
    found = results(application)["best_evaluated_params"]
    assert sorted(found) == ["mix.code", "mix.web"]
    assert sum(found.values()) == 1.0
    for overrides in application.glob("multirun/*/*/*/.hydra/config.yaml"):
        mix = OmegaConf.load(overrides).mix
        assert mix.web + mix.code == 1.0
        assert mix.code <= 0.3
    ended = sweep(application, shares.replace("code", "coder"))
    assert "mix.coder: no such key of the config; did you mean 'mix.code'?" in ended.stderr


@pytest.mark.full
def test_several_metrics_give_a_front(application):
    metrics = ("hydra.sweeper.metric=[a,b]", "hydra.sweeper.direction=[minimize,minimize]")
    grid = ("x=1.0,2.0", "hydra.sweeper.search=grid")
    sinks = "hydra.sweeper.options={tracking: {send_to: [json_lines]}}"
    ended = sweep(application, *metrics, "mode=pair", *grid, sinks)
    assert ended.returncode == 0, ended.stderr
    assert [*application.glob("home/sweeps/*/tracking.jsonl")]
    solutions = sorted(results(application)["solutions"], key=lambda one: one["params"]["x"])
    assert solutions == [
        {"params": {"x": 1.0}, "values": [1.0, -1.0]},
        {"params": {"x": 2.0}, "values": [2.0, -2.0]},
    ]


@pytest.mark.full
def test_what_a_job_reports_stands_and_its_result_is_not_reported_again(application):
    ended = sweep(application, "mode=reports", "x=1.0,2.0", "hydra.sweeper.search=grid")
    assert ended.returncode == 0, ended.stderr
    assert results(application)["best_evaluated_result"] == 1.0


@pytest.mark.full
@pytest.mark.parametrize(
    ("mode", "message"),
    [("nothing", "the function returned None; return the number value"), ("fails", "no such num")],
)
def test_jobs_without_a_value_end_the_command_with_their_error(application, mode, message):
    few = "hydra.sweeper.options={failure: {user_retries: 0}}"
    ended = sweep(application, f"mode={mode}", "x=1.0,2.0", "hydra.sweeper.search=grid", few)
    assert ended.returncode == NO_VALUE
    assert message in ended.stderr + ended.stdout
    assert "no trial has a value" in ended.stderr
    assert [*application.glob("multirun/*/*/multirun.yaml")]
    assert not [*application.glob("multirun/*/*/*optimization_results.yaml*")]
    (recorder,) = application.glob("home/sweeps/*/logs/recorder.log")
    assert recorder.read_text() == ""


ERRORS = [
    (["x=1.0"], "hydra.sweeper.params: there is no range; give one, such as lr='tag(log, "),
    (["x=interval(1, 0)"], "x: min is 1.0, max is 0.0; swap them"),
    (
        ["x=interval(0, 1)", "hydra.sweeper.n_trial=3"],
        "hydra.sweeper.n_trial: no such option; did you mean 'n_trials'?",
    ),
    (
        ["x=interval(0, 1)", "hydra.sweeper.scheduler={type: asha, etta: 3}"],
        "hydra.sweeper.scheduler.etta: no such key; did you mean 'eta'?",
    ),
    (
        ["x=interval(0, 1)", "hydra.sweeper.options={failures: {user_retries: 1}}"],
        "hydra.sweeper.options.failures: no such key; did you mean 'failure'?",
    ),
    (["mod=a,b"], "mod: no such key of the config; did you mean 'mode'? (+mod adds a key)"),
    (["model=huge,small"], "overrides: In 'config': Could not find 'model/huge'"),
    (['+hydra.sweeper.params.x="interval(0,"'], "overrides: no viable alternative at input"),
]
# Starts the application again and again, each time in a fork and in a folder of its own: what
# applications import takes seconds, and most of these sweeps end at once.
FORKS = """
import json
import os
import runpy
import sys

from hydra.core.plugins import Plugins

import hposvc.integrations.hydra

Plugins.instance()
codes = []
for number, arguments in enumerate(json.loads(sys.argv[1])):
    os.mkdir(str(number))
    process = os.fork()
    if not process:
        os.chdir(str(number))
        os.dup2(os.open("stderr", os.O_WRONLY | os.O_CREAT), 2)
        sys.argv = ["../train.py", "-m", *arguments, "hydra/sweeper=hposvc"]
        runpy.run_path("../train.py", run_name="__main__")
        sys.exit()
    codes.append(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
print(json.dumps(codes))
"""


class Refused(NamedTuple):
    code: int
    stderr: str
    ran: bool  # whether it has a folder for jobs


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> list[Refused]:
    """Return how sweeps of ERRORS end."""
    folder = write_application(tmp_path_factory.mktemp("errors"))
    ended = run(folder, "-c", FORKS, json.dumps([arguments for arguments, _ in ERRORS]))
    assert ended.returncode == 0, ended.stderr
    return [
        Refused(code, (place / "stderr").read_text(), (place / "multirun").exists())
        for number, code in enumerate(json.loads(ended.stdout.splitlines()[-1]))
        for place in [folder / str(number)]
    ]


@pytest.mark.full
@pytest.mark.parametrize("number", range(len(ERRORS)), ids=[message for _, message in ERRORS])
def test_an_error_of_the_sweep_is_one_message_and_nothing_runs(refused, number):
    ended = refused[number]
    assert ended.stderr.startswith(ERRORS[number][1])
    assert "Traceback" not in ended.stderr
    assert ended.code == USAGE
    assert not ended.ran


@pytest.mark.full
def test_after_ctrl_c_the_sweep_goes_on_by_resume(application):
    jobs = ("hydra.sweeper.search=grid", "hydra.sweeper.n_jobs=3")
    interrupted = subprocess.Popen(
        [
            sys.executable,
            "train.py",
            "-m",
            "hydra/sweeper=hposvc",
            "mode=waits",
            "x=1.0,2.0,3.0",
            *jobs,
        ],
        stderr=subprocess.PIPE,
        cwd=application,
        env=environment(application),
        text=True,
    )
    assert interrupted.stderr is not None
    assert any(" COMPLETED at step 1" in line for line in interrupted.stderr)
    interrupted.send_signal(signal.SIGINT)
    said = interrupted.communicate(timeout=120)[1]
    assert interrupted.returncode == 130
    assert "Traceback" not in said
    assert "`hposvc resume train-" in said.splitlines()[-1]
    (multirun,) = application.glob("multirun/*/*")
    assert not (multirun / "optimization_results.yaml").exists()
    (application / "gate").touch()
    resumed = run(application, "-m", "hposvc", "resume", "last")
    assert resumed.returncode == 0, resumed.stderr
    handle = hposvc.load("last", application / "home")
    assert sorted(handle.trials()["value"]) == [1.0, 2.0, 3.0]
    assert sorted(each.name for each in multirun.iterdir() if each.is_dir()) == ["0", "1", "2"]
    assert results(application) == {
        "name": "hposvc",
        "sweep": handle.id,
        "best_evaluated_params": {"x": 1.0},
        "best_evaluated_result": 1.0,
    }


@pytest.mark.full
def test_extend_writes_the_results_of_the_longer_sweep(application):
    few = ("hydra.sweeper.search=grid", "hydra.sweeper.n_trials=2")
    ended = sweep(application, "x=3.0,2.0,1.0", *few)
    assert ended.returncode == 0, ended.stderr
    first = results(application)
    assert first["best_evaluated_params"] == {"x": 2.0}
    extended = run(application, "-m", "hposvc", "extend", "last", "--trials", "1")
    assert extended.returncode == 0, extended.stderr
    better = {"best_evaluated_params": {"x": 1.0}, "best_evaluated_result": 1.0}
    assert results(application) == {**first, **better}


@pytest.mark.full
@pytest.mark.timeout(600)
def test_the_commands_of_the_page_run(tmp_path):
    scripts = [text for language, text in BLOCKS if language == "python"]
    for text in scripts:
        (tmp_path / text.split()[1]).write_text(text)
    for block in [text for language, text in BLOCKS if language == "bash"]:
        for line in block.splitlines():
            fewer = line.replace(
                "n_trials=8 hydra.sweeper.n_jobs", "n_trials=4 hydra.sweeper.n_jobs"
            )
            command, *arguments = shlex.split(fewer)  # each trial starts a process
            if command != "pip":
                program = ["-m", "hposvc"] if command == "hposvc" else []
                ended = run(tmp_path, *program, *arguments)
                assert ended.returncode == 0, ended.stderr
    stopped = hposvc.load("last", tmp_path / "home").status().trials.stopped
    assert stopped > 0
