"""What can go wrong in a round: by name, how it is brought about, and what proves that it was.

An injection that came too late, or found nobody, counts for nothing: `proof` looks for its mark.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import broken_disks
import disks
import filling
import older_copies
import psutil
import rivals
import services
from ruamel.yaml import YAML
from scene import Scene
from terminal import GONE_S, pause, until
from wandering import MOOD

from hposvc.events import Attached, Event, Failed, Requested
from hposvc.tracking.recorder_process import BOOT
from trainables.storage.checkpoint import Saved

STALL_S = 6  # `failure.stall` where a rank is frozen
JUMPS_S = (-86400.0, -3600.0, 3600.0, 40 * 86400.0)


@dataclass(frozen=True)
class Injection:
    """One thing that goes wrong."""

    act: Callable[[Scene], None]  # at the moment; a driver is at work then
    proof: Callable[[Scene, Sequence[Event]], bool]  # when all is over: did it happen
    plan: Callable[[Scene], None] = lambda scene: None  # before the sweep begins
    early: bool = False  # it has to come while trials are still proposed
    schedulers: tuple[str, ...] = ()  # where it can happen; empty: everywhere
    possible: Callable[[], bool] = lambda: True  # on this machine
    place: str = ""  # what it gives the sweep to write to; no two of a round give the same


def kill_driver(scene: Scene) -> None:
    """SIGKILL of the driver, which the leaders of the trials live in; resumed at once or later."""
    if not scene.alive:
        return
    scene.driver.kill()
    scene.kills += 1
    scene.hit.add("driver")
    if scene.rng.random() < 0.5:
        _await_ranks_end(scene)
    scene.resume()


def kill_rank(scene: Scene) -> None:
    """SIGKILL of one rank amid a step."""
    _strike(scene, psutil.Process.kill)


def freeze_rank(scene: Scene) -> None:
    """SIGSTOP of one rank amid a step, which nobody takes back."""
    _strike(scene, psutil.Process.suspend)


def _strike(scene: Scene, how: Callable[[psutil.Process], None]) -> None:
    """Do it to any rank at work, and to another one where that one has just gone."""
    while scene.wait(scene.busy_ranks, "a rank at work"):
        if busy := scene.busy_ranks():
            with suppress(psutil.NoSuchProcess):
                how(scene.rng.choice(busy))
                scene.kills += 1
                return


def plan_stall(scene: Scene) -> None:
    scene.spec["failure"] = {"stall": STALL_S, "infra_retries": 20}


def kill_recorder(scene: Scene) -> None:
    """SIGKILL of the process that tells MLflow."""
    for each in psutil.Process(scene.driver.process.pid).children(recursive=True):
        with suppress(psutil.Error):
            if BOOT in each.cmdline():
                each.kill()
                scene.hit.add("recorder")


def plan_mlflow(scene: Scene) -> None:
    server = scene.open.enter_context(services.tracking(scene.terminal.home))
    scene.spec["tracking"] = {"uri": server.uri}
    scene.servers["mlflow"] = server


def kill_mlflow(scene: Scene) -> None:
    """SIGKILL of MLflow's server; it is back before the sweep is over, or not."""
    server = scene.servers["mlflow"]
    server.down()
    scene.hit.add("mlflow")
    if scene.rng.random() < 0.5:
        server.up()
    else:
        scene.repairs.append(server.up)


def plan_postgres(scene: Scene) -> None:
    server = scene.open.enter_context(services.postgres())
    scene.variables["HPOSVC_DB"] = server.url
    scene.servers["postgres"] = server


def plan_given_up(scene: Scene) -> None:
    """A round is not to wait a minute for a driver that gives up."""
    plan_postgres(scene)
    scene.patience_s = 5.0


def blink(scene: Scene) -> None:
    """SIGKILL of the journal's Postgres, which is back before the driver gives up."""
    server = scene.servers["postgres"]
    server.down()
    pause(scene.rng.uniform(1.0, 8.0))
    server.up()


def waited(scene: Scene, events: Sequence[Event]) -> bool:
    """Whether a driver waited for the journal, and was not ended by that."""
    gave_up = any("journal" in line for end in scene.ends for line in end.said.splitlines()[-1:])
    return f"{scene.sweep}: the journal answers again, after" in scene.said() and not gave_up


def kill_own_ray(scene: Scene) -> None:
    """SIGKILL of a process without which this machine's own Ray is none."""
    if not scene.wait(scene.busy_ranks, "a rank at work"):
        return
    name = scene.rng.choice(["raylet", "gcs_server", "keeper"])
    keeper = scene.terminal.keeper()
    found = [keeper] if name == "keeper" else keeper.children(recursive=True)
    for each in found:
        if name in ("keeper", each.name()):
            each.kill()
            scene.kills += 1


def without_ray(scene: Scene, events: Sequence[Event]) -> bool:
    """Whether a driver ended of that, and said so."""
    died = "this machine's own Ray has died"
    return any(end.code == 5 and died in end.said for end in scene.ends)


def looked_on(scene: Scene, events: Sequence[Event]) -> bool:
    """Whether a watcher raised, and nothing came of it but words."""
    told = f"{scene.sweep}: MissingLimitMetrics broke; the sweep goes on" in scene.said()
    return struck("observer")(scene, events) and told


def extend_twice(scene: Scene) -> None:
    """Two terminals grant a trial each at the same moment."""
    both = [scene.terminal.start("extend", scene.sweep, "--trials", "1") for _ in range(2)]
    codes = [command.end()[0] for command in both]
    if codes == [0, 0]:
        scene.hit.add("extend")
    scene.trials += codes.count(0)


def exclude_one(scene: Scene) -> None:
    """A user takes a trial out, whether it runs, waits or has ended."""
    trial = f"t{scene.rng.randint(1, 2):04d}"
    asked = scene.terminal.start("exclude", scene.sweep, trial, "--because", "wrong data")
    if asked.end()[0] == 0:
        scene.hit.add("exclude")


def excluded(scene: Scene, events: Sequence[Event]) -> bool:
    """Whether the journal has it, once, and the best trial is another."""
    state, asked = scene.record().state, [one for one in events if isinstance(one, Requested)]
    marks = [one.trial for one in asked if one.verb == "exclude"]
    return "exclude" in scene.hit and [*state.excluded] == marks and state.best not in marks


def plan_beside(scene: Scene) -> None:
    """The sweep's storage is a folder in which a user has something."""
    project = scene.place / "project"
    (project / "thesis").mkdir(parents=True)
    (project / "thesis" / "chapter-1.txt").write_text("years of work")
    scene.spec["storage"] = str(project)


def remove_beside(scene: Scene) -> None:
    """A user puts a file into the sweep's own folder too."""
    folder = scene.place / "project" / scene.sweep
    if scene.wait(folder.is_dir, "the sweep's folder"):
        (folder / "notes.txt").write_text("mine")


def spared(scene: Scene, events: Sequence[Event]) -> bool:
    """Whether `rm` takes what is the sweep's, and nothing of the user's beside it."""
    project = scene.place / "project"
    ours, theirs = project / scene.sweep, [project / "thesis" / "chapter-1.txt"]
    theirs += [file for file in (ours / "notes.txt",) if file.exists()]
    assert (ours / "checkpoints").is_dir()
    code, said = scene.terminal.start("rm", scene.sweep).end()
    assert code == 0, said
    lost = [file for file in theirs if not file.exists()]
    assert not lost, f"rm took what was the user's: {lost}"
    assert not (ours / "checkpoints").exists()
    return len(theirs) == 2


def kill_postgres(scene: Scene) -> None:
    """SIGKILL of the journal's Postgres; it is back at once, or when the driver has given up."""
    server = scene.servers["postgres"]
    server.down()
    scene.hit.add("postgres")
    scene.kills += 1
    if scene.rng.random() < 0.5:
        until(lambda: not scene.alive, "the driver gives up")
    server.up()


def plan_cluster(scene: Scene) -> None:
    """Two nodes beside the head; the ranks of an order are on both."""
    up = scene.terminal.ask("cluster", "up", "--local", "2", "--cpus", "1")
    scene.open.callback(scene.terminal.ask, "cluster", "down")
    scene.variables |= up["environment"]
    scene.nodes = [node["pid"] for node in up["started_nodes"][1:]]
    scene.spec["resources"] |= {"placement": "spread"}
    scene.shared = True


def plan_slow_start(scene: Scene) -> None:
    """A slot takes both nodes, and several turns to start."""
    plan_cluster(scene)
    scene.spec["resources"] |= {"cpus_per_worker": 1}
    rivals.join(scene)
    scene.spec["trainable"] = "slow:wander"


def kill_raylet(scene: Scene) -> None:
    """SIGKILL of the raylet of a node that trains."""
    if not scene.wait(scene.busy_ranks, "a rank at work"):
        return
    node = psutil.Process(scene.rng.choice(scene.nodes))
    for each in [node, *node.children(recursive=True)]:
        if each.name() == "raylet":
            each.kill()
            scene.kills += 1


def tear_checkpoint(scene: Scene) -> None:
    """The newest checkpoint of a trial loses its end while no driver is at work."""
    if not scene.wait(lambda: needed_checkpoints(scene), "a checkpoint"):
        return
    scene.driver.kill()
    scene.kills += 1
    _await_ranks_end(scene)
    if found := needed_checkpoints(scene):
        saved = scene.rng.choice(found)
        os.truncate(Path(saved.path) / "account", 3)
        scene.torn.add(saved.path)
    scene.resume()


def needed_checkpoints(scene: Scene) -> list[Saved]:
    """Those that trials whose orders are out would go on from, if their driver died now."""
    found = []
    for trial in scene.record().state.trials.values():
        newest = trial.resume_point[0]
        if trial.order is not None and trial.step < trial.until and newest is not None:
            found.append(newest)
    return found


def arm(name: str) -> Callable[[Scene], None]:
    """What the trainable, or the searcher, does itself when it next can."""

    def act(scene: Scene) -> None:
        (scene.place / f"{name}.armed").touch()

    return act


def struck(name: str) -> Callable[[Scene, Sequence[Event]], bool]:
    """Whether what was armed has happened."""
    return lambda scene, events: (scene.place / f"{name}.at").exists()


def raised(scene: Scene, events: Sequence[Event]) -> bool:
    """Whether a driver ended of what the searcher raised, and said so."""
    return struck("searcher")(scene, events) and any(MOOD in end.said for end in scene.ends)


def plan_mood(scene: Scene) -> None:
    scene.spec["search"] = {"method": "wandering:Moody", "place": str(scene.place)}


def plan_limits(scene: Scene) -> None:
    """Limits that a round never comes to, but by a clock that jumps."""
    scene.spec["budget"] = {"wall": "55m"}
    scene.spec["failure"] = {**scene.spec["failure"], "timeout": "50m"}


def plan_seeds(scene: Scene) -> None:
    """Each trial has two seeds at once, and a third while it may be the best."""
    scene.spec["trials"] = {**scene.spec["trials"], "seeds": {"min": 2, "max": 3}}


def seeded(scene: Scene, events: Sequence[Event]) -> bool:
    """Whether further seeds were trained, and count for their trials."""
    state = scene.record().state
    further = [seed for trial in state.trials.values() for seed in trial.seeds if seed.attempts]
    return bool(further) and all(seed.over for seed in further)


def plan_memo(scene: Scene) -> None:
    """The same sweep was run before, and what it trained to the end need not be done again."""
    file = scene.place / "before.yaml"
    YAML().dump(scene.spec, file)
    code, _ = scene.terminal.start("run", str(file), "--id", f"{scene.sweep}-before").end()
    assert code == 0
    scene.set_back_at = time.monotonic()  # diaries up to now are of that sweep
    scene.spec["memo"] = True


def recalled(scene: Scene, events: Sequence[Event]) -> bool:
    """Whether trials took results of the sweep before, and others were trained."""
    memos = {bool(trial.memo) for trial in scene.record().state.trials.values()}
    return memos == {True, False}


def jump_clock(scene: Scene) -> None:
    """The driver's clock is set."""
    jump = scene.rng.choice(JUMPS_S)
    (scene.place / "clock").write_text(str(jump))


def failed(*causes: str) -> Callable[[Scene, Sequence[Event]], bool]:
    """Whether an order broke off for such a cause."""
    return lambda scene, events: any(
        isinstance(event, Failed) and event.cause in causes for event in events
    )


def hit(name: str) -> Callable[[Scene, Sequence[Event]], bool]:
    """Whether the act itself says so."""
    return lambda scene, events: name in scene.hit


def killed(scene: Scene, events: Sequence[Event]) -> bool:
    """Whether the journal tells of a second driver."""
    return "driver" in scene.hit and sum(isinstance(one, Attached) for one in events) > 1


def torn(scene: Scene, events: Sequence[Event]) -> bool:
    """Whether somebody found a checkpoint damaged."""
    return any(isinstance(event, Failed) and event.damaged for event in events)


def _await_ranks_end(scene: Scene) -> None:
    until(lambda: not scene.ranks(), "the ranks of a killed driver are gone", GONE_S)


INJECTIONS = {
    "driver": Injection(kill_driver, killed),
    "rank": Injection(kill_rank, failed("infra")),
    "stop": Injection(freeze_rank, failed("stalled"), plan_stall),
    "raylet": Injection(kill_raylet, failed("infra"), plan_cluster, place="ray"),
    "recorder": Injection(kill_recorder, hit("recorder")),
    "mlflow": Injection(kill_mlflow, hit("mlflow"), plan_mlflow),
    "postgres": Injection(
        kill_postgres,
        hit("postgres"),
        plan_given_up,
        possible=services.has_postgres,
        place="journal",
    ),
    "blink": Injection(
        blink, waited, plan_postgres, possible=services.has_postgres, place="journal"
    ),
    "own ray": Injection(kill_own_ray, without_ray, place="ray"),
    "observer": Injection(arm("observer"), looked_on),
    "interrupt": Injection(arm("interrupt"), failed("user")),
    "two terminals": Injection(extend_twice, hit("extend"), early=True, schedulers=("asha",)),
    "exclude": Injection(exclude_one, excluded),
    "memo": Injection(lambda scene: None, recalled, plan_memo, schedulers=("hyperband",)),
    "seeds": Injection(lambda scene: None, seeded, plan_seeds, schedulers=("asha", "hyperband")),
    "beside": Injection(remove_beside, spared, plan_beside, place="checkpoints"),
    **{
        name: Injection(
            filling.fill(name), filling.proof(name), planned, possible=disks.mountable, place=place
        )
        for name, (planned, place) in filling.PLANS.items()
    },
    "torn": Injection(tear_checkpoint, torn),
    "nan": Injection(arm("nan"), struck("nan")),
    "oom": Injection(arm("oom"), failed("oom")),
    "searcher": Injection(arm("searcher"), raised, plan_mood, early=True, schedulers=("asha",)),
    "leak": Injection(arm("leak"), struck("leak")),
    "daemon": Injection(arm("daemon"), struck("daemon")),
    "slow start": Injection(
        lambda scene: None, rivals.started_for_turns, plan_slow_start, place="ray"
    ),
    "broken disk": Injection(
        broken_disks.break_disk,
        broken_disks.retried,
        broken_disks.plan_broken,
        possible=broken_disks.has_compiler,
        place="checkpoints",
    ),
    "older copy": Injection(
        older_copies.set_back,
        older_copies.noticed,
        schedulers=("hyperband", "pbt"),  # what another terminal asked for may be lost with it
        place="journal",
    ),
    "clock": Injection(jump_clock, struck("clock"), plan_limits),
}
