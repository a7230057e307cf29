"""What an agent needs of a sweep on its own machine: the code, and the folder."""

import io
import stat
import zipfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from simulated_sweeps import spec_of

from hposvc import spec as specs
from hposvc.errors import OutOfReach
from hposvc.journal.home import sign
from hposvc.remote.agent.sweep_files import RecordedSweep, folder_here, relocated, unpack
from hposvc.spec import fingerprint

CODE = "def train(params, worker):\n    worker.report(1, {'loss': 1.0})\n"


def zipped(**files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


class Archive:
    """A server that has nothing but a sweep's archive."""

    def __init__(self, content):
        self._content, self.asked = content, []

    def content(self, path):
        self.asked.append(path)
        return self._content


def recorded_in(folder):
    folder.mkdir()
    (folder / "code.py").write_text(CODE)
    spec = spec_of(f"{folder}/code.py:train", folder=f"{folder}")
    return RecordedSweep("s", specs.dump(spec), fingerprint.describe(spec))


def test_code_that_is_here_as_the_sweep_has_it_is_used_where_it_lies(tmp_path):
    recorded, server = recorded_in(tmp_path / "project"), Archive(b"")
    with ExitStack() as stack:
        spec = recorded.spec_here(server, stack, print)
    assert spec.folder == f"{tmp_path}/project"
    assert server.asked == []


@pytest.mark.parametrize("there", [True, False], ids=["changed", "missing"])
def test_other_code_comes_from_the_server_and_goes_with_the_agent(tmp_path, there):
    recorded, said = recorded_in(tmp_path / "project"), []
    (tmp_path / "project" / "code.py").unlink()
    if there:
        (tmp_path / "project" / "code.py").write_text("# other code\n")
    server = Archive(zipped(**{"code.py": CODE}))
    with ExitStack() as stack:
        spec = recorded.spec_here(server, stack, said.append)
        assert spec.folder != f"{tmp_path}/project"
        assert spec.trainable == f"{spec.folder}/code.py:train"
        assert fingerprint.describe(spec)["sha256"] == recorded.code["sha256"]
        folder = spec.folder
    assert server.asked == ["sweeps/s/archive"]
    assert "its code comes from the server" in said[0]
    assert not Path(folder).exists()


def test_programs_stay_executable_and_no_name_leads_out(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        entry = zipfile.ZipInfo("run.sh")
        entry.external_attr = (stat.S_IFREG | 0o755) << 16
        archive.writestr(entry, "#!/bin/sh\n")
    unpack(buffer.getvalue(), tmp_path)
    assert (tmp_path / "run.sh").stat().st_mode & stat.S_IXUSR
    with pytest.raises(OutOfReach, match="leads out"):
        unpack(zipped(**{"../out.py": ""}), tmp_path)
    assert not (tmp_path.parent / "out.py").exists()


def test_only_paths_in_the_folder_move_with_it():
    frozen = {
        "folder": "/old",
        "trainable": "/old/train.py:f",
        "command": ["python", "/old/train.py", "/older/data"],
        "environment": {"working_dir": "/old/inner", "env": {"A": "/old"}},
        "storage": "/old/storage",
    }
    assert relocated(frozen, "/old", "/new") == {
        "folder": "/new",
        "trainable": "/new/train.py:f",
        "command": ["python", "/new/train.py", "/older/data"],
        "environment": {"working_dir": "/new/inner", "env": {"A": "/old"}},
        "storage": "/old/storage",
    }


def test_a_signed_folder_is_shared_with_this_machine(tmp_path):
    sign(tmp_path / "s", "the journal")
    with ExitStack() as stack:
        assert folder_here(tmp_path / "s", None, stack, print) == tmp_path / "s"


def test_without_the_folder_checkpoints_need_a_store_and_logs_stay_here(tmp_path):
    said = []
    with ExitStack() as stack:
        with pytest.raises(OutOfReach, match="checkpoints would be lost; set the spec's `storage`"):
            folder_here(tmp_path / "s", None, stack, said.append)
        private = folder_here(tmp_path / "s", f"file://{tmp_path}/store", stack, said.append)
        assert private.is_dir()
    assert "logs of ranks stay in" in said[0]
    assert not private.exists()
    assert not (tmp_path / "s").exists()
