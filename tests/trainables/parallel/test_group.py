"""Ranks meeting at a store which outlives their groups. Real gloo, two processes."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from trainables.parallel.group import (
    FAILED,
    PeerLost,
    RankStore,
    may_keep,
    set_gloo_interface,
    timeout_of,
)

# As on GPUs, but for the backend itself: gloo stands in for NCCL.
STAND_IN = """
import os, sys
from contextlib import suppress
import torch
import torch.distributed as dist
from trainables.parallel.group import RankStore

init, rank = dist.init_process_group, int(sys.argv[1])
dist.init_process_group = lambda backend, **options: init("gloo", **options)
if rank == 0:
    meeting = RankStore.open("127.0.0.1", 2, True)
    print(meeting.port, flush=True)
else:
    meeting = RankStore.join("127.0.0.1", int(sys.argv[2]), 1, 2, True)

def order(number, fails=()):
    with suppress(KeyError), meeting.group(number):
        dist.new_group()  # as for a mesh
        dist.all_reduce(ones := torch.ones(1))
        assert ones.item() == 2
        group = dist.group.WORLD
        if rank in fails:
            raise KeyError
    assert len(dist.distributed_c10d._world.pg_map) == int(meeting.keeps_group)
    return group if meeting.keeps_group else None

first = order(1)
assert first is not None and order(2) is first
assert order(3, fails=(0, 1)) is None  # where all fail, nobody waits for anybody
second = order(4)
assert second not in (None, first)
assert (order(5, fails=(1,)) is second) == (rank == 0)
third = order(6)  # that of the rank that ended well is of no use to the other
assert third not in (None, second)
meeting.drop()
assert not dist.is_initialized()
assert order(7) not in (None, third)
print("done", flush=True)
os._exit(0)
"""


@pytest.mark.full
def test_a_group_on_gpus_serves_order_after_order_until_one_fails():
    """NCCL takes seconds to make a group; and failing used to cost both processes."""
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    pipes = {"env": environment, "cwd": Path(__file__).parents[3], "text": True}
    command = [sys.executable, "-c", STAND_IN]
    with subprocess.Popen([*command, "0"], stdout=subprocess.PIPE, **pipes) as first:
        try:
            port = first.stdout.readline().strip()
            peer = subprocess.run([*command, "1", port], capture_output=True, timeout=90, **pipes)
            assert peer.stdout == "done\n", peer.stderr
            assert first.stdout.read() == "done\n"
        finally:
            first.kill()


@pytest.mark.parametrize(
    ("backend", "ends", "kept"),
    [
        ("nccl", ["7", "7"], True),
        ("nccl", ["7", "8"], False),
        ("nccl", ["7", FAILED], False),
        ("nccl", [FAILED, FAILED], False),
        ("gloo", ["7", "7"], False),
    ],
)
def test_only_nccl_keeps_a_group_and_only_where_all_ranks_did_the_same(backend, ends, kept):
    """A gloo group that was kept has hung the next order."""
    assert may_keep(backend, ends) is kept


def test_on_gpus_a_collective_may_take_a_little_longer_than_an_order_may_hang():
    """The coordinator reports a hang before; a week would be as good as forever."""
    assert timeout_of("nccl", 600.0).total_seconds() == 660
    assert timeout_of("nccl", 1e9) == timeout_of("gloo", 600.0)


def test_the_store_listens_at_the_address_of_rank_0_alone():
    """A process that can reach the store can rewrite it, and ranks unpickle a peer's data."""
    rank_store = RankStore.open("127.0.0.1", 2, False)
    listening = {
        connection.laddr.ip
        for connection in psutil.Process().net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == rank_store.port
    }
    assert listening == {"127.0.0.1"}


@pytest.mark.full
def test_who_waits_for_a_rank_0_that_is_gone_is_told():
    code = (
        "from trainables.parallel.group import RankStore; "
        "meeting = RankStore.open('127.0.0.1', 2, False); print(meeting.port, flush=True); input()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    root = Path(__file__).parents[3]
    with subprocess.Popen([sys.executable, "-c", code], cwd=root, **pipes) as host:
        rank_store = RankStore.join("127.0.0.1", int(host.stdout.readline()), 1, 2, False)
        host.kill()
        host.wait()
    with pytest.raises(PeerLost, match="rank 0 left before its report 0"):
        rank_store.wait_for_report(1, 0)


def test_gloo_is_told_the_interface_that_has_the_address(monkeypatch):
    """By default gloo looks up the host's name, which may be unknown or mean loopback."""
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    name = next(
        name
        for name, addresses in psutil.net_if_addrs().items()
        if any(address.address == "127.0.0.1" for address in addresses)
    )
    set_gloo_interface("127.0.0.1")
    assert os.environ["GLOO_SOCKET_IFNAME"] == name
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
