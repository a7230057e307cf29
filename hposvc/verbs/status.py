"""`status`: show a sweep's progress; hposvc/views/dashboard.py draws it."""

import sys

from hposvc.verbs.options import Shared, sweep_id, verb
from hposvc.views import dashboard, result
from hposvc.views.console import show
from hposvc.views.proposal import describe_queue


@verb
@sweep_id
def status_command(shared: Shared, sweep: str) -> None:
    """Show a sweep's progress, best trial and running trials."""
    record = shared.open_sweep(sweep).record()
    if not shared.json(record.status()):
        wide = sys.stdout.isatty()
        served = shared.find_server() is not None
        panel = dashboard.status_view(
            record.row.id, record.state, record.driver, wide, served, record.waiting
        )
        show(panel, *describe_queue(record), *result.mlflow(record, shared.find_home()))
