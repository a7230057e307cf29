"""The config of the sweeper: `hydra.sweeper`."""

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore


@dataclass
class HposvcSweeperConf:
    """See docs/hydra.md."""

    _target_: str = "hydra_plugins.hposvc_sweeper.sweeper.HposvcSweeper"
    direction: Any = "minimize"  # or a list, for several metrics
    metric: Any = "value"  # the name of what is returned or reported; a list for several metrics
    n_trials: int = 20
    n_jobs: int = 1  # jobs at once; a new one starts when one ends
    search: Any = "auto"
    scheduler: Any = "fifo"
    max_steps: int | None = None  # reports of a whole trial, for schedulers that stop trials
    params: dict[str, Any] = field(default_factory=dict)  # ranges by key
    seed: int | None = None
    name: str | None = None  # beginning of the sweep's id; None: the job's name
    home: str | None = None  # None: HPOSVC_HOME, or ~/.hposvc
    options: Any = None  # further sections of a spec


ConfigStore.instance().store("hposvc", HposvcSweeperConf, "hydra/sweeper", provider="hposvc")
