"""Options of a cluster's nodes on this machine; ../hposvc/cli/commands starts some."""

import os
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster import node


def test_each_worker_sees_gpus_of_its_own():
    options, environment = node.worker_options("127.0.0.2:6379", 1, 2.0, 2)
    assert options == {"address": "127.0.0.2:6379", "num-cpus": "2", "num-gpus": "2"}
    assert environment == {"CUDA_VISIBLE_DEVICES": "2,3"}
    assert node.worker_options("127.0.0.2:6379", 1, 0.5, 0)[1] == {}


def test_the_dashboard_answers_to_this_machine_alone():
    options, environment = node.head_options("8265", 0.5)
    assert options["dashboard-host"] == "127.0.0.1"
    assert (options["dashboard-port"], options["num-cpus"]) == ("8265", "0.5")
    assert all(port.isdigit() for port in environment.values())


def test_ports_are_free_and_differ():
    """Ray refuses a port that two of its parts are to use."""
    with ExitStack() as stack:
        for port in node.free_ports(50, besides="20001"):
            stack.enter_context(socket.socket()).bind(("", int(port)))


def test_a_node_knows_our_packages_and_no_other_cluster(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.7:6379")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    environment = node.clean_environment()
    assert not {"RAY_ADDRESS", "RAY_AUTH_TOKEN"} & environment.keys()
    root = str(Path(node.__file__).parents[1])
    assert environment["PYTHONPATH"] == os.pathsep.join([root, "/theirs"])
    assert environment["PATH"].startswith(str(Path(sys.executable).parent))


@pytest.mark.parametrize(
    ("logs", "said"),
    [
        ({}, ""),
        ({"head": "started\n"}, ""),
        ({"head": "ValueError: no\nall is well\n"}, ""),
        ({"head": "started\n", "node-1": "x\nOSError: in use\n\n"}, "; node-1: OSError: in use"),
    ],
)
def test_the_error_that_a_log_ends_with_is_told(tmp_path, logs, said):
    for name, text in logs.items():
        (tmp_path / f"{name}.log").write_text(text)
    assert node.last_error(tmp_path) == said
