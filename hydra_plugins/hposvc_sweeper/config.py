"""The config of the sweeper: `hydra.sweeper`."""

from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

# See hposvc docs hydra. A schema, or a closed mapping, would let Hydra refuse a misspelled
# key before the sweeper can say which key is meant.
DEFAULTS = OmegaConf.create(
    {
        "_target_": "hydra_plugins.hposvc_sweeper.sweeper.HposvcSweeper",
        "direction": "minimize",  # or a list, for several metrics
        "metric": "value",  # the name of what is returned or reported; a list for several metrics
        "n_trials": 20,
        "n_jobs": 1,  # jobs at once; a new one starts when one ends
        "search": "auto",
        "scheduler": "fifo",
        "max_steps": None,  # reports of a whole trial, for schedulers that stop trials
        "params": {},  # ranges by key
        "seed": None,
        "name": None,  # beginning of the sweep's id; None: the job's name
        "home": None,  # None: HPOSVC_HOME, or ~/.hposvc
        "options": None,  # further sections of a spec
    },
    flags={"struct": False},
)

ConfigStore.instance().store("hposvc", DEFAULTS, "hydra/sweeper", provider="hposvc")
