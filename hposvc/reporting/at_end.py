"""The process that writes a sweep's report into its folder when the sweep has ended.

The driver's recorder starts it by name (hposvc/tracking/recorder_process.py), once no slot is held
any more.
"""

import logging
from collections.abc import Mapping
from typing import Any

from hposvc.api import Sweeps
from hposvc.journal.home import REPORT
from hposvc.open_sweep import OpenSweep
from hposvc.reporting.document import Section, html
from hposvc.reporting.writing import write
from hposvc.tracking.sink import SinkSetting


def main(task: Mapping[str, Any]) -> None:
    """Write the report of the task's sweep."""
    logging.basicConfig(format="%(asctime)s report: %(message)s", level=logging.INFO)
    setting = SinkSetting.of_task(task)
    sweep = OpenSweep(Sweeps(setting.home, setting.journal), setting.sweep.id)
    write(setting.folder, {REPORT: html([Section.read(sweep, setting.home)])})
