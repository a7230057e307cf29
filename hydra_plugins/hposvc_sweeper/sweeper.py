"""The sweeper plugin; its work is in hposvc.integrations.hydra, imported once it is used."""

import os
import sys
from typing import Any

from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from hydra_plugins.hposvc_sweeper.config import DEFAULTS

__all__ = ["DEFAULTS", "HposvcSweeper"]


class HposvcSweeper(Sweeper):
    """Runs a sweep of hposvc, whose trials are jobs of the application.

    Args:
        options: those of DEFAULTS, as given; checked by `sweep`.
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
            SystemExit: by Ctrl-C, or with the message and the exit code of an error that says what
                to correct. Hydra would print the traceback of any error; of these it does so only
                with HYDRA_FULL_ERROR=1.
        """
        from hposvc.errors import BUG, INTERRUPTED, TERMINATED
        from hposvc.integrations import hydra

        assert self.config is not None
        assert self.hydra_context is not None
        loader = self.hydra_context.config_loader
        try:
            return hydra.sweep(self.config, loader, arguments, hydra.Options.read(self._options))
        except Exception as error:
            code = getattr(type(error), "exit_code", BUG)
            full = os.environ.get("HYDRA_FULL_ERROR") == "1"
            full = full and code not in (INTERRUPTED, TERMINATED)
            if code == BUG or full:
                raise
            sys.stderr.write(f"{error}\n")
            raise SystemExit(code) from None
