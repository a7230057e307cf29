"""The process that writes a sweep's report into its folder when the sweep has ended.

The driver's recorder starts it by name (hposvc/tracking/recorder_process.py), once no slot is held
any more. Nobody waits for it: it takes seconds to import what charts need, and to fit models.
"""

import logging
from collections.abc import Mapping
from typing import Any

from hposvc.api import Sweeps
from hposvc.journal.home import REPORT
from hposvc.open_sweep import OpenSweep
from hposvc.reporting.document import Section, html
from hposvc.reporting.writing import write
from hposvc.spec import registry
from hposvc.spec.sinks import sink_type
from hposvc.tracking.mlflow_server import quiet_mlflow, why_not
from hposvc.tracking.sink import SinkSetting, recorder_lock
from trainables.contract import locked


def main(task: Mapping[str, Any]) -> None:
    """Write the report of the task's sweep, and attach it to the sweep's runs in sinks."""
    logging.basicConfig(format="%(asctime)s report: %(message)s", level=logging.INFO)
    setting = SinkSetting.of_task(task)
    sweep = OpenSweep(Sweeps(setting.home, setting.journal), setting.sweep.id)
    report = html([Section.read(sweep, setting.home)])
    if not setting.folder.exists():  # the sweep was deleted meanwhile
        return
    write(setting.folder, {REPORT: report})
    quiet_mlflow()
    for name in setting.spec.tracking.send_to:
        if not sink_type(name).has_report or why_not(name, setting.spec):
            continue
        with locked(recorder_lock(setting.folder, name)):  # its recorder may still be sending
            sink = registry.resolve(sink_type(name).sink)(setting)
            sink.attach_report(sweep.record().state)
