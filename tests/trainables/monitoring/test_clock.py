"""If these fail, the step-time breakdown blames the wrong part, and people speed up that one."""

from time import perf_counter

import pytest
import torch
from torch import nn

from trainables.monitoring.clock import Clock, PhaseTimer

CPU = torch.device("cpu")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def spin(seconds: float) -> None:
    """Work for this many seconds."""
    end = perf_counter() + seconds
    while perf_counter() < end:
        pass


def timed(clock: Clock, updates: int) -> list[int]:
    """Return the numbers of the updates, from 0, whose phases are timed."""
    numbers = []
    for number in range(updates):
        clock.next_update()
        with (part := clock.phase("forward")):
            numbers += [number] * isinstance(part, PhaseTimer)
    return numbers


def test_each_part_gets_the_time_that_was_spent_in_it():
    clock = Clock(CPU, every=1)
    for _ in range(4):
        clock.next_update()
        with clock.phase("data"):
            spin(0.004)
        for _micro_batch in range(2):
            with clock.phase("forward"):
                spin(0.004)
        spin(0.006)  # is nobody's
    times = clock.collect()
    assert times.keys() == {"data", "forward", "update"}
    assert times["data"] >= 0.004
    assert times["forward"] >= 0.008
    # The update ends with its last part: the loop's own business after it does not count.
    assert times["update"] >= times["data"] + times["forward"]


def test_what_comes_after_the_last_part_is_not_the_updates_time():
    """An evaluation between the last update and the report would look like a slow update."""
    clock = Clock(CPU, every=1)
    timed(clock, 3)
    spin(0.3)
    assert clock.collect()["update"] < 0.15


def test_one_update_in_twenty_five_is_timed():
    clock = Clock(CPU)
    assert timed(clock, 60) == [1, 26, 51]
    clock.collect()
    assert timed(clock, 30) == [1, 26]


def test_reports_of_few_updates_are_timed_too():
    clock = Clock(CPU)
    numbers = []
    for _ in range(4):
        numbers += timed(clock, 1)
        clock.collect()
    assert numbers == [0, 0, 0]  # all but the first report


def test_a_part_that_failed_is_not_counted():
    """Out of memory: the update is tried again, and only the pass that worked is typical."""
    clock = Clock(CPU, every=1)
    timed(clock, 1)
    clock.next_update()
    with pytest.raises(MemoryError), clock.phase("backward"):
        raise MemoryError
    with clock.phase("forward"):
        pass
    assert "backward" not in clock.collect()


def test_without_others_nothing_of_a_backward_pass_is_communication():
    clock = Clock(CPU, every=1)
    model = nn.Sequential(*[nn.Linear(200, 200) for _ in range(4)])
    for _ in range(5):
        clock.next_update()
        loss = model(torch.ones(400, 200)).sum()
        with clock.phase("backward"):
            clock.split(loss)
            loss.backward()
    times = clock.collect()
    assert times["communication"] < 0.2 * times["backward"]


@pytest.mark.gpu
@on_gpu
def test_parts_are_timed_on_the_gpus_own_timeline():
    """The host is done with a matrix product at once; the device is not."""
    device = torch.device("cuda", 0)
    clock = Clock(device, every=1)
    x = torch.randn(8192, 8192, device=device)
    for _ in range(4):
        clock.next_update()
        begun = perf_counter()
        with clock.phase("forward"):
            for _product in range(20):
                y = x @ x
        issued = perf_counter() - begun
        with clock.phase("data"):
            spin(0.001)  # hidden behind the products
    times = clock.collect()
    assert y.isfinite().all()
    assert times["forward"] > 5 * issued
    assert times["data"] < 0.001
    assert times["update"] >= times["forward"]
