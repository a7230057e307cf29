"""`schema`: print the JSON Schema of a spec."""

from hposvc.drafts import draft as drafts
from hposvc.verbs.options import Shared, verb
from hposvc.views.console import emit


@verb
def schema_command(shared: Shared) -> None:
    """Print the JSON Schema of a spec, by which editors complete its keys."""
    emit(drafts.schema())
