"""The page on which MLflow shows a sweep: its address and its view.

MLflow 3.17 opens an experiment on its page for language-model traces, and lists runs without any
metric or parameter. So the address opens a shared view, as MLflow's Share button makes it: a tag of
the experiment, in JSON, with filter, order and columns.
"""

import json
from urllib.parse import quote, urlsplit

from hposvc.spec import SweepSpec
from hposvc.tracking.mlflow_names import legal_name
from hposvc.tracking.projection import OBJECTIVE

LOCAL = "http://127.0.0.1:5000"  # where `mlflow ui` answers
MOST_COLUMNS = 12  # of parameters
MOST_SWEEPS = 10  # lines of an experiment's description
MARK = "viewStateShareKey="  # in each line that is ours
WORKFLOW = "workflowType=machine_learning"  # or else MLflow shows pages for traces


def address(uri: str, experiment: str, sweep: str) -> str:
    """Return the address that opens the runs of a sweep.

    Args:
        uri: of the tracking server, or of a database that `mlflow ui` serves on this machine.
        experiment: its id.
    """
    server = uri.rstrip("/") if is_served(uri) else LOCAL
    return f"{server}/{_runs(experiment, sweep)}"


def run_address(uri: str, experiment: str, run: str) -> str:
    """Return the address of what a run logged, on a tracking server; no credentials are in it."""
    parts = urlsplit(uri)
    place = f"{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
    return f"{parts.scheme}://{place}/{_run(experiment, run)}/artifacts?{WORKFLOW}"


def is_served(uri: str) -> bool:
    """Return whether a tracking server answers at the URI, and not `mlflow ui` on this machine."""
    return uri.startswith(("http://", "https://"))


def note_line(experiment: str, run: str, sweep: str, result: str, report: str) -> str:
    """Return a sweep's line in its experiment's description, with links.

    Args:
        experiment, run: ids of the experiment and of the sweep's own run.
        result: what came out so far, in words.
        report: the artifact with the sweep's report; empty: there is none.
    """
    page = _run(experiment, run)
    links = [
        f"[report]({page}/artifacts/{quote(report)}?{WORKFLOW})" if report else "",
        f"[runs, best first]({_runs(experiment, sweep)})",
        f"[charts]({page}/model-metrics?{WORKFLOW})",
    ]
    return " · ".join([f"**{sweep}**: {result}", *filter(None, links)])


def note_with(note: str, line: str) -> str | None:
    """Return an experiment's description with a sweep's line at the top; None: it is not ours.

    MLflow shows the first line above the runs. A description that a person wrote, or changed, has
    a line without our mark, and is left alone.
    """
    lines = [text for text in note.splitlines() if text.strip()]
    if not all(MARK in text for text in lines):
        return None
    sweep = line.partition(": ")[0]
    others = [text for text in lines if text.partition(": ")[0] != sweep]
    return "\n\n".join([line, *others][:MOST_SWEEPS])


def view(sweep: str, spec: SweepSpec, finished: bool) -> str:
    """Return the view of a sweep's runs: best first, state and objective before parameters.

    Args:
        finished: whether the trials have ranks.
    """
    metrics = [metric.name for metric in spec.objectives] if spec.several else [OBJECTIVE]
    columns = [
        *(_column("metrics", legal_name(name)) for name in metrics),
        _column("tags", "hposvc.state"),
        _column("tags", "hposvc.reason"),
        *(_column("params", legal_name(name)) for name in [*spec.space.searched][:MOST_COLUMNS]),
        _column("attributes", "Duration"),
    ]
    return json.dumps(
        {
            "searchFilter": f"tags.`hposvc.sweep` = '{sweep}'",
            "orderByKey": _column("tags", "hposvc.rank" if finished else "hposvc.best"),
            "orderByAsc": finished,
            "selectedColumns": columns,
            "columnOrder": columns,
        }
    )


def _run(experiment: str, run: str) -> str:
    return f"#/experiments/{experiment}/runs/{run}"


def _runs(experiment: str, sweep: str) -> str:
    return f"#/experiments/{experiment}/runs?{MARK}{quote(sweep)}&{WORKFLOW}"


def _column(kind: str, name: str) -> str:
    return f"{kind}.`{name}`"
