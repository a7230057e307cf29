"""`best`: show the best trial, or the front; hposvc/views/result.py describes it."""

from hposvc.analysis.findings import sureness
from hposvc.verbs.options import Shared, sweep_id, verb
from hposvc.views import result
from hposvc.views.console import note, show


@verb
@sweep_id
def best_command(shared: Shared, sweep: str) -> None:
    """Show the best trial, how sure it is, and its checkpoint; of several metrics the front."""
    record = shared.open_sweep(sweep).record()
    if shared.json(record.best()):
        return
    if front := record.front():
        show(result.best(front, record.state.spec))
        home = shared.find_home()
        show(*sureness(record.state), *result.report(record, home), *result.mlflow(record, home))
    if warning := record.warning():
        note(warning)
