from pathlib import Path

import pytest
from tasks import Forgetful

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
