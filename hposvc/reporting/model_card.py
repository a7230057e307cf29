"""The best checkpoint of a sweep as a model to hand on: its weights, and a card about it.

The folder is laid out as model hubs have it: README.md, whose first lines are for the hub, weights
in one file, and the configuration.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from hposvc.errors import NotFound, StoreError, fail
from hposvc.open_sweep import OpenSweep
from hposvc.reporting.document import Section
from hposvc.reporting.markdown import first_screen, reproduction
from hposvc.spec.parsing.document import to_yaml
from hposvc.state.answers import values_of
from trainables.contract import CheckpointDamaged, Saved
from trainables.storage import checkpoint, stores
from trainables.storage.checkpoint import MANIFEST

CARD, CONFIGURATION, WEIGHTS = "README.md", "config.json", "model.safetensors"


def hand_on(sweep: OpenSweep, to: str) -> list[str]:
    """Write the best checkpoint with its card into a folder or a store; return the files' names.

    The checkpoint of a Task becomes one file of weights, which `safetensors` reads without this
    package; the files of other checkpoints are copied as they are.

    Args:
        to: a folder, which must be empty or missing, or the URL of one in a store (`s3://...`).

    Raises:
        NotFound: there is no best checkpoint.
        SpecError: the folder is not empty, or the URL can't be written to.
        StoreError: a file is damaged, or the store can't be reached.
    """
    section = Section.read(sweep)
    saved = _best_checkpoint(section)
    _check_free(to)
    folder = checkpoint.temporary_folder()
    try:
        _copy_weights(checkpoint.verify(saved), folder)
        best = section.front[0]
        (folder / CONFIGURATION).write_text(f"{json.dumps(best.params, indent=2)}\n")
        (folder / CARD).write_text(card(section))
        if stores.is_url(to):
            stores.upload(to, folder, last=CARD)
        else:
            shutil.copytree(folder, to, dirs_exist_ok=True)
    except ModuleNotFoundError as error:  # safetensors; it names the remedy
        raise fail(error) from error
    except (CheckpointDamaged, OSError) as error:
        raise StoreError(f"{error}") from error
    return sorted(
        file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()
    )


def card(section: Section) -> str:
    """Return the card in Markdown: what a hub shows of it, the results, and how they came about."""
    lines = ["---", _for_hubs(section).rstrip(), "---", "", f"# {section.row.name}", ""]
    if section.state.spec.description:
        lines += [section.state.spec.description, ""]
    return "\n".join([*lines, *first_screen(section), *reproduction(section)])


def _for_hubs(section: Section) -> str:
    """Return the card's first lines: tags, and the result in the words of a model index."""
    best = section.front[0]
    metrics = [
        {"type": metric.name, "value": value, "name": metric.name}
        for metric, value in zip(section.metrics, values_of(best.value), strict=True)
    ]
    result: dict[str, Any] = {
        "task": {"type": "other"},
        "dataset": {"type": "unknown", "name": section.project},
        "metrics": metrics,
    }
    data = {
        "tags": ["hposvc", "hyperparameter-optimization"],
        "model-index": [{"name": section.row.name, "results": [result]}],
    }
    return to_yaml(data)


def _best_checkpoint(section: Section) -> Saved:
    if not section.front:
        raise NotFound(f"{section.id}: {section.nothing}")
    best = section.front[0]
    trial = section.state.trials[best.trial]
    saved = trial.checkpoint_at(best.step)
    if saved is None or best.checkpoint is None:
        raise NotFound(
            f"{section.id}: {trial.id}, the best trial, has no checkpoint of step {best.step}",
            fix="`checkpoints: {keep_best: 1}` keeps it, if the code saves any",
        )
    return saved


def _check_free(to: str) -> None:
    if stores.is_url(to):
        try:
            stores.check_url(to)
        except ValueError as error:
            raise fail(error) from error
    elif Path(to).exists() and (not Path(to).is_dir() or any(Path(to).iterdir())):
        raise fail(f"{to} exists and is not an empty folder", fix="give another")


def _copy_weights(source: Path, folder: Path) -> None:
    """Copy a checkpoint: a Task's as one file of weights, the files of any other as they are."""
    from trainables.checkpoints.exporting import export

    try:
        export(source, folder / WEIGHTS)
    except ValueError:  # no Task's
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST))
