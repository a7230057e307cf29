"""Memory sizes of GPUs."""

import pytest

from trainables.memory_estimation.gpus import memory_of


def test_gpus_are_known_by_name_and_by_size():
    assert memory_of("80G") == 80 * 10**9
    assert memory_of("79GiB") == 79 * 2**30
    assert memory_of("H100") > memory_of("A100-40g")
    with pytest.raises(ValueError, match=r"h200\?"):
        memory_of("h2000")
