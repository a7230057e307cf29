"""Ranks that meet at a store which outlives their groups. Real gloo, two processes."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from trainables.parallel.group import Meeting, PeerLost, talk_over

# Leaves at once, as a rank does: see ../conftest.py.
PEER = """
import os, sys
import torch
import torch.distributed as dist
from trainables.parallel.group import Meeting

meeting = Meeting.join("127.0.0.1", int(sys.argv[1]), 1, 2, False)
for order in (1, 2):
    with meeting.group(order):
        dist.all_reduce(torch.ones(1))
    meeting.hear(order, 0)
os._exit(0)
"""


def test_each_order_has_a_group_of_its_own_at_one_store():
    import torch
    import torch.distributed as dist

    meeting = Meeting.open("127.0.0.1", 2, False)
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", PEER, str(meeting.port)]
    with subprocess.Popen(command, env=environment, cwd=root) as peer:
        for order in (1, 2):
            ones = torch.ones(1)
            with meeting.group(order):
                dist.all_reduce(ones)
            assert ones.item() == 2
            assert not dist.is_initialized()
            meeting.tell(order, 0, "1 go")
        assert peer.wait(timeout=60) == 0


def test_who_waits_for_a_rank_0_that_is_gone_is_told():
    code = (
        "from trainables.parallel.group import Meeting; "
        "meeting = Meeting.open('127.0.0.1', 2, False); print(meeting.port, flush=True); input()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    root = Path(__file__).parents[3]
    with subprocess.Popen([sys.executable, "-c", code], cwd=root, **pipes) as host:
        meeting = Meeting.join("127.0.0.1", int(host.stdout.readline()), 1, 2, False)
        host.kill()
        host.wait()
    with pytest.raises(PeerLost, match="rank 0 left before its report 0"):
        meeting.hear(1, 0)


def test_gloo_is_told_the_interface_that_has_the_address(monkeypatch):
    """By itself it looks up the host's name, which may be unknown or mean loopback."""
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    name = next(
        name
        for name, addresses in psutil.net_if_addrs().items()
        if any(address.address == "127.0.0.1" for address in addresses)
    )
    talk_over("127.0.0.1")
    assert os.environ["GLOO_SOCKET_IFNAME"] == name
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
