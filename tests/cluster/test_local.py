"""A cluster on this machine: options and errors (its use: hposvc/verbs/test_cluster.py)."""

import os
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from cluster import local
from cluster.jobs import JobsError
from cluster.processes import family
from hposvc.cli.main import main

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Make this test's clusters put Ray's files into a folder of the test."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(local.tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.ray
@pytest.mark.long
def test_a_cluster_that_does_not_come_up_leaves_nothing(tmp_path, monkeypatch):
    def late(ask):
        raise JobsError("the dashboard is late")

    monkeypatch.setattr(local, "with_retries", late)
    folders, ended = [], []
    mkdtemp = local.tempfile.mkdtemp
    monkeypatch.setattr(
        local.tempfile, "mkdtemp", lambda **how: folders.append(mkdtemp(**how)) or folders[-1]
    )
    end = local.end
    monkeypatch.setattr(
        local, "end", lambda mark, *what: ended.append((mark, family(mark))) or end(mark, *what)
    )
    with pytest.raises(local.ClusterError, match=r"did not come up: the dashboard is late"):
        local.up(tmp_path / "home", local.Shape(1))
    [(mark, members)] = ended
    assert [process.info["name"] for process in members].count("raylet") == 2
    assert not family(mark)
    assert len(folders) == 1
    assert not Path(folders[0]).exists()
    assert local.find(tmp_path / "home") is None


def test_a_node_that_takes_too_long_is_given_up(tmp_path, folders, monkeypatch):
    monkeypatch.setattr(local, "START_S", 0.5)
    with pytest.raises(local.ClusterError, match=r"did not come up: after 0\.5 s head is not up"):
        local.up(tmp_path / "home", local.Shape(1))
    assert list(folders.iterdir()) == []


def test_a_node_that_ends_is_started_again_and_what_it_said_is_told(tmp_path, folders, monkeypatch):
    starts = []
    run = local.subprocess.run

    def start(command, **options):
        starts.append(command)
        return run(command, **options)

    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setattr(local, "head_options", lambda *_: {"no-such-option": "1"})
    monkeypatch.setattr(local.subprocess, "run", start)
    with pytest.raises(local.ClusterError, match=r"head has ended; Error: No such option"):
        local.up(tmp_path / "home", local.Shape(1))
    assert len(starts) == local.STARTS
    assert list(folders.iterdir()) == []


@pytest.mark.ray
@pytest.mark.long
def test_a_worker_that_ends_is_started_again_beside_the_same_head(tmp_path, monkeypatch):
    started = []
    popen = local.subprocess.Popen

    def start(command, **options):
        started.append(next(word for word in command if word.startswith("--node-name=")))
        return popen([sys.executable, "-c", ""] if len(started) == 2 else command, **options)

    monkeypatch.setattr(local.subprocess, "Popen", start)
    try:
        cluster, now = local.up(tmp_path / "home", local.Shape(1))
        assert now
        assert started == ["--node-name=head", "--node-name=node-1", "--node-name=node-1"]
        assert [node["state"] for node in cluster.ask().nodes()] == ["ALIVE", "ALIVE"]
    finally:
        assert local.down(tmp_path / "home")


def test_a_cluster_that_ended_with_the_machine_is_forgotten(tmp_path, folders):
    (folders / "left").mkdir()
    head = local.Node("head", "127.0.0.2", os.getpid())  # the pid is another process's by now
    past = local.LocalCluster(
        "left", str(folders / "left"), "token", "http://127.0.0.1:1", "", (head,)
    )
    local._write_state(tmp_path, past)
    assert local.find(tmp_path) is None
    assert local.down(tmp_path) is None
    assert list(folders.iterdir()) == []


@pytest.mark.parametrize("cpus", [[], ["--cpus", "1"]])
def test_a_machine_without_linux_is_told_so(tmp_path, monkeypatch, capsys, cpus):
    monkeypatch.setattr(local, "sys", SimpleNamespace(platform="darwin"))
    monkeypatch.delattr(os, "sched_getaffinity")
    with pytest.raises(SystemExit) as ended:
        main(["--home", str(tmp_path), "cluster", "up", "--local", "2", *cpus])
    assert ended.value.code == 5
    assert "several nodes on one machine need Linux; `hposvc run` needs none" in (
        capsys.readouterr().err
    )


def test_down_makes_no_home(tmp_path):
    assert local.down(tmp_path / "home") is None
    assert not (tmp_path / "home").exists()


def test_each_worker_sees_gpus_of_its_own():
    options, environment = local.worker_options("127.0.0.2:6379", 1, 2.0, 2)
    assert options == {"address": "127.0.0.2:6379", "num-cpus": "2", "num-gpus": "2"}
    assert environment == {"CUDA_VISIBLE_DEVICES": "2,3"}
    assert local.worker_options("127.0.0.2:6379", 1, 0.5, 0)[1] == {}


def test_the_dashboard_answers_to_this_machine_alone():
    options = local.head_options("8265", "10001", 0.5)
    assert options["dashboard-host"] == "127.0.0.1"
    assert (options["dashboard-port"], options["num-cpus"]) == ("8265", "0.5")


def test_ports_are_free_and_differ():
    """Ray refuses a port that two of its parts are to use."""
    with ExitStack() as stack:
        for port in local.free_ports(50):
            stack.enter_context(socket.socket()).bind(("", int(port)))


def test_a_node_knows_our_packages_and_no_other_cluster(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.7:6379")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    environment = local.clean_environment()
    assert not {"RAY_ADDRESS", "RAY_AUTH_TOKEN"} & environment.keys()
    root = str(Path(local.__file__).parents[1])
    assert environment["PYTHONPATH"] == os.pathsep.join([root, "/theirs"])
    assert environment["PATH"].startswith(str(Path(sys.executable).parent))
