"""Commands as trainables, from the spec's file to the process, without Ray."""

import pytest

from hposvc.errors import SpecError
from hposvc.journal.journal import SweepRow
from hposvc.spec import dump, fingerprint, load

SCRIPT = """
import sys, time
lr = float(sys.argv[1].removeprefix("--lr="))
for epoch in range(1, 4):
    print(f"epoch {epoch}: loss={lr / epoch}", flush=True)
    time.sleep(600 if "slow" in sys.argv else 0)
sys.exit("out of data" if "fails" in sys.argv else 0)
"""


@pytest.fixture
def spec(tmp_path, monkeypatch):
    """Return a function that makes a spec of a script in the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)

    def make(*more, **sections):
        return {
            "command": ["python", "train.py", "${args}", *more],
            "collect": {"stdout": r"loss=(?P<loss>\S+)"},
            "metric": {"name": "loss", "goal": "minimize"},
            "parameters": {"lr": {"min": 1e-5, "max": 0.1, "log": True}},
            "fidelity": {"max": 3},
            "trials": {"max": 2},
            "engine": "local",
            **sections,
        }

    return make


def test_a_change_of_the_script_is_seen(spec, tmp_path):
    """Otherwise a resumed sweep would compare the results of two programs."""
    loaded = load(spec())
    row = SweepRow("s-1", "s", "p", 0.0, dump(loaded), fingerprint.describe(loaded))
    fingerprint.check_unchanged(row.id, row.spec, row.code)
    (tmp_path / "train.py").write_text(SCRIPT + "# changed")
    with pytest.raises(SpecError, match=r"command: python train\.py .* changed since s-1 began"):
        fingerprint.check_unchanged(row.id, row.spec, row.code)


@pytest.mark.parametrize(
    "command",
    [
        ["python", "train.py", "--backend", "deepspeed", "${args}"],
        ["python", "torchrun.py", "${args}"],
        ["torchrun", "--node_rank=${RANK}", "--nnodes=${WORLD_SIZE}", "train.py", "${args}"],
        ["sh", "-c", "torchrun --node_rank=$RANK --nnodes=$WORLD_SIZE train.py ${args}"],
    ],
)
def test_ranks_that_start_no_ranks_of_their_own_are_not_refused(spec, command):
    load(spec(command=command, engine="ray", resources={"workers": 2}))
    torchrun = ["torchrun", "train.py", "${args}"]
    load(spec(command=torchrun, engine="ray", resources={"workers": 2}, launch="node"))
    load(spec(command=torchrun, engine="ray", resources={"workers": 1}))
