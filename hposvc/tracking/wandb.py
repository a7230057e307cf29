"""Runs as files of Weights & Biases: `wandb sync` uploads them.

W&B's own offline mode writes them from the journal when the sweep has ended. What is in the folder
by then is noted last, so whatever a killed writer left, or a disk lost, is written anew.
"""

import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import wandb

from hposvc.journal.follow import Follow
from hposvc.spec.sinks import SINKS
from hposvc.tracking.projection import PARENT, Projection, RunContent, RunEnd
from hposvc.tracking.sink import Sink, SinkSetting

NAMESPACE = uuid.UUID("0d2f2c3e-6a55-4b0e-9d5c-64b1b6d2c0a7")  # of the ids of runs
LONGEST_TAG = 64  # characters
OWN = frozenset({"_step", "_timestamp", "_runtime", "_wandb"})  # names that W&B needs itself
EXIT_CODES: Mapping[RunEnd, int] = {"FINISHED": 0, "FAILED": 1, "KILLED": 255}  # 255: Ctrl-C
# Nothing of this process, its machine and its code is in the files, nor anything on a terminal.
OFF = ("disable_git", "disable_code", "x_disable_stats", "x_disable_meta", "x_disable_machine_info")
KEPT = {"console": "off", "symlink": False, "x_save_requirements": False}
BARE = wandb.Settings.model_validate({"silent": True, **KEPT, **dict.fromkeys(OFF, True)})


class WandB(Sink):
    """A sweep's runs in the folder wandb/ of its folder, as a group of W&B."""

    name: ClassVar[str] = "wandb"
    gathers: ClassVar[bool] = True  # nothing is written before the end

    def __init__(self, setting: SinkSetting) -> None:
        self.path: Path = setting.folder / SINKS[self.name].path
        self._setting = setting

    def clear(self) -> None:
        """Delete all files."""
        shutil.rmtree(self.path, ignore_errors=True)

    def finish(self, projection: Projection) -> None:
        """If the sweep has ended, write its runs, unless they are there; they may change before."""
        if not projection.state.finished:
            return
        of, written = self._setting, self.path / "written.json"
        journal = Follow(of.journal, of.sweep, lambda: Projection(of.sweep, of.spec))
        whole = journal.look()  # with every point
        last = f"{journal.seq} {journal.last}"
        if written.exists() and written.read_text() == self._inventory(last):
            return
        self.clear()
        self.path.mkdir(parents=True)
        with _service(self.path):
            for key, entry in whole.take_entries().items():
                self._setting.alive()
                self._write(key, entry)
        written.write_text(self._inventory(last))

    def _inventory(self, last: str) -> str:
        """Return what there is, after a last event."""
        files = sorted(self.path.glob("offline-run-*/run-*.wandb"))
        return json.dumps([last, {path.name: path.stat().st_size for path in files}])

    def _write(self, key: str, entry: RunContent) -> None:
        sweep, spec, step = self._setting.sweep, self._setting.spec, attrgetter("step")
        tags = [f"{name}={value}" for name, value in spec.tags.items()]
        run = wandb.init(
            mode="offline",
            dir=self.path.parent,
            # Another sweep may get the id of a removed one, whose runs stay in W&B.
            id=uuid.uuid5(NAMESPACE, f"{sweep.id} {sweep.created} {key}").hex,
            project=spec.project,
            group=sweep.id,
            job_type="sweep" if key == PARENT else "trial",
            name=key or sweep.id,
            notes=f"hposvc status {sweep.id}",
            tags=[tag for tag in tags if len(tag) <= LONGEST_TAG],
            config=dict(entry.params),
            reinit="create_new",
            settings=BARE,
        )
        for number, points in groupby(sorted(entry.points, key=step), step):
            row: dict[str, float] = {}
            for point in points:
                row |= {_free_name(point.name): point.value, "_timestamp": point.time / 1000}
            self._setting.alive()  # a row takes 0.3 ms
            run.log(row, step=number)
        run.summary.update(entry.tags)
        run.finish(exit_code=EXIT_CODES[entry.status or "KILLED"])


@contextmanager
def _service(folder: Path) -> Iterator[None]:
    """Let W&B read and write nothing outside a folder, and end the process that it starts."""
    before = dict(os.environ)
    with TemporaryDirectory(dir=folder) as scratch:
        try:
            for name in [name for name in before if name.startswith("WANDB_")]:
                del os.environ[name]
            places = ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_DIR")
            os.environ.update(dict.fromkeys(places, scratch), WANDB_ERROR_REPORTING="false")
            yield
        finally:
            wandb.teardown()
            os.environ.clear()
            os.environ.update(before)


def _free_name(metric: str) -> str:
    """Return a metric's name; with an underscore more if W&B needs the name, or one so made."""
    return f"_{metric}" if f"_{metric.lstrip('_')}" in OWN and metric[:1] == "_" else metric
