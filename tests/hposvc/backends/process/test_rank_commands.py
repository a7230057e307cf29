"""Where an agent's ranks run: here, or on the nodes of a Slurm job."""

import pytest

from hposvc.backends.process.rank_commands import ANY, LocalLauncher, SlurmLauncher, launcher_here
from hposvc.errors import OutOfReach

JOB = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2", "SLURM_JOB_NUM_NODES": "2"}


@pytest.mark.parametrize(
    "variables",
    [{}, {"SLURM_JOB_ID": "7"}, {**JOB, "SLURM_NTASKS": "1"}, {**JOB, "SLURM_STEP_NUM_TASKS": "2"}],
    ids=["no Slurm", "tasks unknown", "one task", "one of several agents"],
)
def test_ranks_run_here_unless_a_slurm_job_has_tasks_for_them(variables):
    assert launcher_here(variables) == LocalLauncher()


def test_a_slurm_job_of_several_tasks_starts_all_ranks_by_one_srun():
    launcher = launcher_here({**JOB, "SLURM_CPUS_PER_TASK": "4"})
    assert launcher.host() == ANY
    [command] = launcher.commands(2)
    assert command[:3] == ("srun", "--ntasks=2", "--cpus-per-task=4")


def test_on_one_node_the_ranks_call_on_loopback():
    assert SlurmLauncher(2, 1, None).host() == "127.0.0.1"


def test_more_ranks_than_tasks_are_refused_with_the_option_to_give():
    with pytest.raises(OutOfReach, match="2 tasks; submit it with --ntasks=3"):
        launcher_here(JOB).commands(3)


def test_local_ranks_know_their_numbers():
    assert [command[-2:] for command in LocalLauncher().commands(2)] == [("0", "2"), ("1", "2")]
