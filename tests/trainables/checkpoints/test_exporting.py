import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tasks import Forgetful
from training_states import saved, trained, trained_tensors

from trainables import Worker
from trainables.checkpoints.exporting import export
from trainables.storage import checkpoint


def test_a_changed_checkpoint_is_not_exported(tmp_path):
    worker = Worker.alone(folder=tmp_path)
    Forgetful().train(worker)
    folder = Path(worker.saved.path)
    (folder / "training.pt").write_bytes((folder / "training.pt").read_bytes()[:-1] + b"?")
    with pytest.raises(checkpoint.CheckpointDamaged):
        export(folder, tmp_path / "model.pt")


@pytest.mark.full
def test_an_export_is_a_plain_state_dict(tmp_path):
    state = trained()
    saved(tmp_path, state)
    for name, load in (("model.pt", torch.load), ("model.safetensors", load_file)):
        held = load(export(tmp_path, tmp_path / name))
        assert held.keys() == {*dict(state.model.named_parameters(remove_duplicate=False))} | {
            *dict(state.model.named_buffers())
        }
        assert all(torch.equal(value, held[key]) for key, value in trained_tensors(state).items())
    command = [sys.executable, "-m", "trainables.checkpoints.exporting", tmp_path, "--ema", "--to"]
    subprocess.run([*command, tmp_path / "ema.pt"], check=True)
    averaged = torch.load(tmp_path / "ema.pt")
    with state.average.applied():
        assert all(
            torch.equal(weight, averaged[key]) for key, weight in trained_tensors(state).items()
        )
    wrong = subprocess.run([*command, "model.onnx"], capture_output=True, text=True)
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "model.onnx: choose an ending of .pt, .pth, .safetensors\n",
    )
