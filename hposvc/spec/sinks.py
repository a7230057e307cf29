"""The section `tracking`, and the sinks: places that the runs of a sweep can be sent to.

A new sink takes a file in hposvc/tracking with a class as hposvc/tracking/sink.py describes it, and
a row here. A sink of a user's own is named by reference.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from hposvc.errors import fail
from hposvc.spec.registry import REFERENCES, is_reference
from hposvc.spec.types import CLOSED, Word
from searchers import nearest


@dataclass(frozen=True)
class SinkType:
    """A sink's class, its name for people, and what others need to know of it."""

    sink: str  # "module:Class"
    title: str
    package: str = ""  # which it imports; empty: it needs none
    requirement: str = ""  # what pip installs to have the package
    path: str = ""  # of its file or folder in a sweep's folder; empty: it writes none there
    viewer: str = ""  # the name of what shows its records; empty: results do not say how
    # What to type for that, with {path} and {folder} quoted for a shell, and {sweep}.
    view: str = "{path}"
    keys: tuple[str, ...] = ()  # of the section `tracking`, that only such sinks read
    has_registry: bool = False  # of models, as the section `register` needs
    has_report: bool = False  # a sweep's report is attached there: `attach_report`
    slow: bool = False  # large simulations are sent only if they ask
    command_item: str = ""  # how an item of `command` begins without which it can hold no sweep
    refusal: str = ""  # of sweeps without such an item

    @property
    def is_installed(self) -> bool:
        """Whether the sink's package can be imported here."""
        return not self.package or find_spec(self.package) is not None


HYDRA_FOLDER = "hydra.sweep.dir="  # begins the item of a command that names its multirun's folder
SINKS: Mapping[str, SinkType] = {
    "mlflow": SinkType(
        "hposvc.tracking.mlflow_sink:MLflowSink",
        "MLflow",
        keys=("uri", "experiment"),
        has_registry=True,
        has_report=True,
        slow=True,
    ),
    "json_lines": SinkType(
        "hposvc.tracking.json_lines:JsonLines",
        "tracking.jsonl",
        path="tracking.jsonl",
        viewer="JSON lines",
    ),
    "tensorboard": SinkType(
        "hposvc.tracking.tensorboard:TensorBoard",
        "TensorBoard's files",
        path="tensorboard",
        viewer="TensorBoard",
        view="tensorboard --logdir {path}",
    ),
    "wandb": SinkType(
        "hposvc.tracking.wandb:WandB",
        "Weights & Biases' files",
        "wandb",
        "hposvc[wandb]",
        path="wandb",
        viewer="W&B",
        view="cd {folder} && wandb sync --sync-all",
    ),
    "trackio": SinkType(
        "hposvc.tracking.trackio:Trackio",
        "Trackio",
        "trackio",
        "hposvc[trackio]",
        viewer="Trackio",
        view="trackio show --project {sweep}",
    ),
    "hydra": SinkType(
        "hposvc.tracking.hydra_results:HydraResults",
        "optimization_results.yaml",
        "hydra",
        "hydra-core",
        command_item=HYDRA_FOLDER,
        refusal="is for sweeps that `python train.py -m hydra/sweeper=hposvc` makes",
    ),
}


def sink_type(name: str) -> SinkType:
    """Return a sink by its name in a spec: a key of SINKS, or a reference to a user's class."""
    return SinkType(name, name.rpartition("/")[2]) if ":" in name else SINKS[name]


def sink_paths() -> set[str]:
    """Return the names of the files and folders that sinks write into sweeps' folders."""
    return {sink.path for sink in SINKS.values() if sink.path}


def describe_sinks(names: Sequence[str]) -> tuple[str, str]:
    """Return the titles of sinks, and their names in a spec, for a message."""
    return " or ".join(SINKS[name].title for name in names), " or ".join(names)


def sink_key(name: str, folder: str | None = None) -> str:
    """Return the name of a sink in the journal and in the names of files: letters, digits and _.

    Args:
        folder: that travels to a cluster, where a path in it is relative. The key stays the same.
    """
    if ":" not in name:
        return name
    file, _, cls = name.rpartition(":")
    if folder is not None and Path(file).is_relative_to(Path(folder)):
        name = f"{Path(file).relative_to(folder).as_posix()}:{cls}"
    return f"{cls[:16]}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"


@dataclass(frozen=True)
class Tracking:
    """Where the runs of a sweep are sent, and the MLflow server and experiment."""

    send_to: tuple[Word, ...] = ("mlflow",)  # keys of SINKS, and references to classes of users
    uri: Word | None = None  # None: MLFLOW_TRACKING_URI, or the embedded server
    experiment: Word | None = None  # None: the project
    system_metrics: bool = False  # a Task's metrics of its machine, by MLflow's names
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        for number, name in enumerate(self.send_to):
            if name not in SINKS and not is_reference(name):
                other = "" if ":" not in name and ".py" not in name else f"; write {REFERENCES}"
                raise fail("no such sink", "send_to", number, fix=f"{nearest(name, SINKS)}{other}")
            if name in self.send_to[:number]:
                raise fail(f"names {name} twice", "send_to", number, fix="remove one")
        for key in dict.fromkeys(key for sink in SINKS.values() for key in sink.keys):
            readers = [name for name, sink in SINKS.items() if key in sink.keys]
            if getattr(self, key) is not None and not {*readers} & {*self.send_to}:
                titles, names = describe_sinks(readers)
                message, fix = f"is for {titles}, which is not in send_to", f"add {names} there"
                raise fail(message, key, fix=fix)
        if self.uri is not None and (self.uri.startswith("file:") or ":" not in self.uri):
            fix = "write sqlite:///PATH or http://HOST"
            raise fail("names a folder, which MLflow 3 refuses", "uri", fix=fix)
        if self.uri is not None and self.uri.startswith("http") and {"?", "#"} & set(self.uri):
            fix = "give http://HOST"
            raise fail("has ? or #, which would swallow the paths of MLflow's API", "uri", fix=fix)
