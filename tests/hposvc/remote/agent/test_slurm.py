"""Agents in a real Slurm: an array, whose tasks are requeued, cancelled and preempted; srun."""

import os
import sys

import pytest
from real_server import SPEC, environment, serving
from slurm_cluster import WHY_NOT, slurm_cluster
from waiting import until

from hposvc import api
from hposvc.events import Failed, Reported

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT),
    pytest.mark.skipif(os.getuid() != 0, reason="slurmd of Debian runs as root"),
]
SCRIPT = """#!/usr/bin/env bash
#SBATCH --signal=B:TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
exec {python} -m hposvc agent s --grace 10
"""


@pytest.fixture
def server(tmp_path):
    with serving(tmp_path / "home") as server:
        yield server


@pytest.fixture
def slurm(tmp_path, server):
    variables = environment(tmp_path / "home", HPOSVC_SERVER=server.url)
    with slurm_cluster(**variables) as cluster:
        script = cluster.folder / "agents.sbatch"
        script.write_text(SCRIPT.format(python=sys.executable))
        yield cluster


def submit(slurm, *options):
    output = f"--output={slurm.folder}/agent-%a.txt"
    return slurm.submit(slurm.folder / "agents.sbatch", *options, output)


def said(slurm, task):
    file = slurm.folder / f"agent-{task}.txt"
    return file.read_text() if file.exists() else ""


def all_said(slurm):
    return "".join(said(slurm, task) for task in (1, 2, 3)) + slurm.logs()


def works(slurm, task):
    """Return whether a task's agent is at work on a trial."""
    return "training steps" in said(slurm, task).rstrip().rpartition("\n")[2]


def events_of(home):
    return [event for _, event in api.Sweeps.open(home).journal.read("s")]


def test_an_array_is_requeued_cancelled_and_preempted_and_loses_nothing(server, slurm, tmp_path):
    server.submit(SPEC, "s")
    job = submit(slurm, "--array=1-3", "--ntasks=1", "--cpus-per-task=2")
    until(lambda: all(works(slurm, task) for task in (1, 2, 3)), lambda: all_said(slurm))
    slurm.run("scontrol", "requeue", f"{job}_1")
    slurm.run("scancel", f"{job}_2")
    urgent = slurm.folder / "urgent.sh"
    urgent.write_text("#!/bin/sh\nsleep 1\n")
    [node] = slurm.run("squeue", "-h", "-j", f"{job}_3", "-o", "%N").split()
    slurm.submit(urgent, "--partition=high", f"--nodelist={node}", "--ntasks=2", "-o/dev/null")
    until(lambda: "leaving" in said(slurm, 3), lambda: all_said(slurm))
    # A requeued task waits two minutes before it begins again (Slurm 22.05).
    until(lambda: slurm.states(f"{job}_1")[f"{job}_1"] == "PENDING", lambda: all_said(slurm))
    until(lambda: slurm.states(f"{job}_3")[f"{job}_3"] == "PENDING", lambda: all_said(slurm))
    for task in (1, 3):
        slurm.run("scontrol", "update", f"jobid={job}_{task}", "starttime=now")
    until(lambda: server.get("sweeps/s")["state"] == "COMPLETED", lambda: all_said(slurm))
    assert slurm.states(job)[f"{job}_2"] == "CANCELLED"
    until(lambda: "s is over" in said(slurm, 1), lambda: all_said(slurm))
    until(lambda: "s is over" in said(slurm, 3), lambda: all_said(slurm))
    rows = server.trials("s")
    assert len(rows) == 9
    assert {row["state"] for row in rows} == {"COMPLETED", "STOPPED"}
    events = events_of(tmp_path / "home")
    # What was reported stands: nothing is trained twice, and each trial goes on where it was.
    reported = [(event.trial, event.step) for event in events if isinstance(event, Reported)]
    assert len(set(reported)) == len(reported)
    assert {event.cause for event in events if isinstance(event, Failed)} == {"preempt"}


def test_two_ranks_by_srun_train_with_ddp(server, slurm, tmp_path):
    sections = {"trainable": "code.py:ddp", "fidelity": {"max": 3}, "trials": {"max": 3}}
    resources = {"resources": {"workers": 2}}
    server.submit({**SPEC, **sections, **resources}, "s")
    submit(slurm, "--array=1-1", "--nodes=2", "--ntasks=2")
    until(lambda: server.get("sweeps/s")["state"] == "COMPLETED", lambda: all_said(slurm))
    until(lambda: "s is over" in said(slurm, 1), lambda: all_said(slurm))
    reports = [event for event in events_of(tmp_path / "home") if isinstance(event, Reported)]
    assert {event.metrics["ranks"] for event in reports} == {2.0}
