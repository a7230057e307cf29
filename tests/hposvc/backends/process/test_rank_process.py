"""What a rank finds out about its place: its number, its node's ranks, its GPUs."""

import pytest

from hposvc.backends.process.rank_process import (
    RankPosition,
    own_devices,
    position_of,
    tasks_per_node,
)
from hposvc.errors import OutOfReach

STEP = {
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),3",
    "SLURM_SRUN_COMM_HOST": "10.0.0.1",
}


def test_slurm_shortens_the_tasks_of_nodes():
    assert tasks_per_node("2(x3),1") == [2, 2, 2, 1]


def test_srun_says_which_rank_this_is_and_where_the_agent_is():
    assert position_of([], STEP) == RankPosition(5, 1, 3, "10.0.0.1")


def test_ranks_of_this_machine_are_numbered_by_the_agent():
    assert position_of(["1", "2"], {}) == RankPosition(1, 1, 2)


@pytest.mark.parametrize(
    ("devices", "gpus", "local_rank", "local_size", "own"),
    [
        ("0123", 1, 2, 4, "2"),
        ("0123", 2, 1, 2, "23"),
        ("01", 0.5, 3, 4, "1"),
        ("7", 1, 3, 4, "7"),  # bound by Slurm
        ("23", 2, 1, 2, "23"),  # likewise
    ],
)
def test_each_rank_has_its_share_of_the_visible_devices(devices, gpus, local_rank, local_size, own):
    assert own_devices([*devices], gpus, RankPosition(0, local_rank, local_size)) == [*own]


def test_too_few_devices_are_refused_with_the_number_to_ask_for():
    with pytest.raises(OutOfReach, match=r"3 ranks on this node, and 2 devices .* ask Slurm for 3"):
        own_devices(["0", "1"], 1, RankPosition(0, 0, 3))
