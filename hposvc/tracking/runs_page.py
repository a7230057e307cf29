"""The page on which MLflow shows a sweep: its address and its view.

MLflow 3.17 opens an experiment on its page for language-model traces, and lists runs without any
metric or parameter. So the address opens a shared view, as MLflow's Share button makes it: a tag of
the experiment, in JSON, with filter, order and columns.
"""

import json
from urllib.parse import quote

from hposvc.spec import SweepSpec
from hposvc.tracking.mlflow_names import legal_name
from hposvc.tracking.projection import OBJECTIVE

LOCAL = "http://127.0.0.1:5000"  # where `mlflow ui` answers
MOST_COLUMNS = 12  # of parameters


def address(uri: str, experiment: str, sweep: str) -> str:
    """Return the address that opens the runs of a sweep.

    Args:
        uri: of the tracking server, or of a database that `mlflow ui` serves on this machine.
        experiment: its id.
    """
    server = uri.rstrip("/") if uri.startswith(("http://", "https://")) else LOCAL
    query = f"viewStateShareKey={quote(sweep)}&workflowType=machine_learning"
    return f"{server}/#/experiments/{experiment}/runs?{query}"


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


def _column(kind: str, name: str) -> str:
    return f"{kind}.`{name}`"
