import json
from types import SimpleNamespace

import pytest

from trainables.parallel import recorder
from trainables.parallel.recorder import MOST, last_collectives


def entry(number, retired=True, p2p=False):
    return {
        "is_p2p": p2p,
        "p2p_seq_id": 100 + number,
        "collective_seq_id": number,
        "retired": retired,
        "state": "started",
        "process_group": ["0", "default"],
        "profiling_name": "gloo:all_reduce",
        "input_sizes": [[4]],
    }


@pytest.fixture
def recorded(monkeypatch):
    """Return a function that gives torch's flight recorder these entries."""

    def give(*entries):
        def dump(includeCollectives, onlyActive):
            return json.dumps({"entries": entries})

        c10d = SimpleNamespace(_dump_fr_trace_json=dump)
        distributed = SimpleNamespace(is_available=lambda: True)
        torch = SimpleNamespace(distributed=distributed, _C=SimpleNamespace(_distributed_c10d=c10d))
        monkeypatch.setitem(recorder.sys.modules, "torch", torch)

    return give


def test_each_collective_is_a_line_with_what_became_of_it(recorded):
    recorded(entry(1), entry(2, retired=False), entry(3, p2p=True))
    assert last_collectives().splitlines() == [
        "  1 gloo:all_reduce [[4]] in default: done",
        "  2 gloo:all_reduce [[4]] in default: started",
        "  103 gloo:all_reduce [[4]] in default: done",
    ]


def test_the_last_ones_are_shown(recorded):
    recorded(*map(entry, range(50)))
    lines = last_collectives().splitlines()
    assert len(lines) == MOST
    assert lines[-1].startswith("  49 ")
