"""`best`: show the best trial, or the front; hposvc/views/result.py describes it."""

from hposvc.verbs.options import Shared, home_of, open_sweep, sweep_id, verb
from hposvc.views.console import note, show


@verb
@sweep_id
def best_command(shared: Shared, sweep: str) -> None:
    """Show the best trial, how sure it is, and its checkpoint; of several metrics the front."""
    from hposvc.analysis.verdict import sureness
    from hposvc.views import result

    record = open_sweep(shared, sweep).record()
    if shared.json(record.best()):
        return
    if front := record.front():
        show(result.best(front, record.state.spec))
        show(*sureness(record.state), *result.mlflow(record, home_of(shared)))
    if warning := record.warning():
        note(warning)
