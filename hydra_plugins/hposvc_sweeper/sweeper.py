"""The sweeper plugin; its work is in hposvc.integrations.hydra, imported once it is used."""

import sys
from typing import Any

from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from hydra_plugins.hposvc_sweeper.config import HposvcSweeperConf

__all__ = ["HposvcSweeper", "HposvcSweeperConf"]


class HposvcSweeper(Sweeper):
    """Runs a sweep of hposvc, whose trials are jobs of the application.

    Args:
        options: the fields of HposvcSweeperConf.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self.config: DictConfig | None = None
        self.hydra_context: HydraContext | None = None

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Take over the application's config."""
        self.config, self.hydra_context = config, hydra_context

    def sweep(self, arguments: list[str]) -> Any:
        """Run the sweep, and return its `hposvc.Result`.

        Args:
            arguments: overrides of the command line, of which some are ranges.

        Raises:
            SystemExit: by Ctrl-C; of any other error Hydra makes a traceback.
        """
        from hposvc.errors import INTERRUPTED, Interrupted
        from hposvc.integrations import hydra

        assert self.config is not None
        assert self.hydra_context is not None
        loader, options = self.hydra_context.config_loader, hydra.Options(**self._options)
        try:
            return hydra.sweep(self.config, loader, arguments, options)
        except Interrupted as error:
            sys.stderr.write(f"{error}\n")
            raise SystemExit(INTERRUPTED) from None
