"""The environment of ranks, and their port. If these fail, two trials meet at one port, or none."""

import socket
from contextlib import ExitStack

import pytest

from trainables.programs.rendezvous import RankAddress, RankEnv, reserved_port, single_rank


def rank_envs(*addresses):
    return [
        RankEnv(rank, tuple(RankAddress(*address) for address in addresses), 7)
        for rank in range(len(addresses))
    ]


def test_a_held_port_is_nobody_else_s_until_it_is_asked_for():
    with ExitStack() as stack:
        held = [stack.enter_context(reserved_port()) for _ in range(200)]
        assert len(set(held)) == 200
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2000)]
        assert not {server.getsockname()[1] for server in servers} & {*held}
        for port in held:
            stack.enter_context(socket.create_server(("127.0.0.1", port)))


@pytest.mark.parametrize("libuv", [True, False])
def test_a_store_of_torch_listens_on_a_held_port(libuv):
    from torch.distributed import TCPStore

    with reserved_port() as port:
        master = TCPStore("127.0.0.1", port, 1, True, use_libuv=libuv)
        master.set("a", "b")
        assert TCPStore("127.0.0.1", port, 1, False, use_libuv=libuv).get("a") == b"b"


def test_ranks_are_counted_by_node():
    first, second, third, fourth = rank_envs(("a", None), ("b", None), ("a", ""), ("b", None))
    assert [rank_env.for_rank["LOCAL_RANK"] for rank_env in (first, second, third, fourth)] == list(
        "0011"
    )
    assert [rank_env.first_of_node for rank_env in (first, second, third, fourth)] == [1, 1, 0, 0]
    assert third.for_rank["LOCAL_WORLD_SIZE"] == "2"
    assert third.for_rank["RANK"] == "2"
    assert "CUDA_VISIBLE_DEVICES" not in third.for_rank
    assert second.for_node["NODE_RANK"] == second.for_node["PET_NODE_RANK"] == "1"
    assert second.for_node["NNODES"] == "2"
    assert second.for_node["PET_NPROC_PER_NODE"] == "2"
    assert second.for_node["PET_MASTER_ADDR"] == "a"
    assert second.for_node["WORLD_SIZE"] == "4"


def test_a_process_finds_its_gpu_at_its_local_rank():
    first, _, third = rank_envs(("a", "3"), ("b", "3"), ("a", "1"))
    assert first.for_rank["CUDA_VISIBLE_DEVICES"] == "3,1"
    assert (
        third.for_rank["CUDA_VISIBLE_DEVICES"].split(",")[int(third.for_rank["LOCAL_RANK"])] == "1"
    )
    assert third.for_node["CUDA_VISIBLE_DEVICES"] == "3,1"


def test_a_process_with_several_gpus_sees_its_own():
    _, second = rank_envs(("a", "0,1"), ("a", "2,3"))
    assert "CUDA_VISIBLE_DEVICES" not in second.for_rank  # inherited: 2,3
    assert second.for_rank["LOCAL_RANK"] == "0"
    assert second.for_node["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"


def test_a_rank_alone_has_all_that_torchrun_sets():
    with single_rank() as rank_env:
        assert rank_env.variables == {
            "RANK": "0",
            "WORLD_SIZE": "1",
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": f"{rank_env.port}",
        }
