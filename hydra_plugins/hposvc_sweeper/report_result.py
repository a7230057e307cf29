"""The callback of each job: it gives the job its number, and reports what its function returned."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, open_dict, read_write


class ReportResult(Callback):
    """Reports the result of a job, unless the job has reported by itself.

    Args:
        metrics: names of the sweep's metrics.
    """

    def __init__(self, metrics: Sequence[str]) -> None:
        self._metrics = list(metrics)

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Give the job the number of its trial, from 0, as jobs of a multirun have it."""
        number = int("".join(filter(str.isdigit, os.environ["HPOSVC_TRIAL"]))) - 1
        with read_write(config), open_dict(config):
            config.hydra.job.num, config.hydra.job.id = number, str(number)

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        """Report the returned number or numbers.

        Raises:
            TypeError: the job returned something else, and did not report.
        """
        import hposvc
        from trainables.session import has_reported

        if job_return.status == JobStatus.COMPLETED and not has_reported():
            hposvc.report(self._name(job_return.return_value))

    def _name(self, value: Any) -> dict[str, float]:
        if isinstance(value, Mapping):
            return {str(name): float(number) for name, number in value.items()}
        numbers = list(value) if isinstance(value, list | tuple) else [value]
        try:
            values = [float(number) for number in numbers]
        except (TypeError, ValueError):
            values = []
        if len(values) != len(self._metrics):
            raise TypeError(
                f"the function returned {value!r:.60}; return {self._wanted()}, or call "
                "hposvc.report({...}) in it"
            )
        return dict(zip(self._metrics, values, strict=True))

    def _wanted(self) -> str:
        names = ", ".join(self._metrics)
        return f"the number {names}" if len(self._metrics) == 1 else f"a tuple ({names})"
