"""Errors of a cluster on this machine; its normal use is tested in tests/hposvc/cli/commands."""

import os
import sys
from types import SimpleNamespace

import pytest

from cluster import local
from cluster.processes import Process, family
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
def test_a_cluster_that_does_not_come_up_leaves_nothing(tmp_path, folders, monkeypatch):
    monkeypatch.setattr(local, "START_S", 1.0)
    ended = []
    end = local.end
    monkeypatch.setattr(local, "end", lambda *what: ended.append(what[:2]) or end(*what))
    with pytest.raises(local.ClusterError, match=r"did not come up: the head is not up"):
        local.up(tmp_path / "home", local.Shape(1))
    [(heads, mark)] = ended
    assert heads
    assert not family(heads, mark)
    assert list(folders.iterdir()) == []
    assert local.find(tmp_path / "home") is None


def test_a_node_that_ends_is_started_again_and_what_it_said_is_told(tmp_path, folders, monkeypatch):
    starts = []
    refused = {"no-such-option": "1"}, {}
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setattr(local, "head_options", lambda *_: starts.append(refused) or refused)
    with pytest.raises(local.ClusterError, match=r"head has ended; head: Error: No such option"):
        local.up(tmp_path / "home", local.Shape(1))
    assert len(starts) == local.STARTS
    assert list(folders.iterdir()) == []


def test_a_cluster_that_ended_with_the_machine_is_forgotten(tmp_path, folders):
    gone = Process(pid=1, born=1, boot="another")
    (folders / "left").mkdir()
    past = local.Local("left", str(folders / "left"), "token", "http://127.0.0.1:1", "", ())
    local._write_state(
        tmp_path, local.replace(past, nodes=(local.Node("head", "127.0.0.2", gone),))
    )
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
