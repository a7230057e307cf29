"""Checks of a spec that import the user's code."""

from pathlib import Path
from typing import TYPE_CHECKING

from hposvc.errors import fail
from hposvc.spec import registry
from trainables import load

if TYPE_CHECKING:
    from hposvc.spec import SweepSpec

PACKAGES = ("hposvc", "searchers", "trainables", "cluster")


def forbid_user_code() -> None:
    """Import no code of users in this process from now on: it serves several users.

    Specs are checked as far as that goes. `import_and_check`, and the plug-ins of the spec, are for
    the process that drives the sweep.
    """
    load.allow_only(PACKAGES)


def import_and_check(spec: "SweepSpec") -> "SweepSpec":
    """Return the spec, once its trainable, command or curve, rules and sinks were found and fit.

    Raises:
        SpecError: the code cannot be imported, or does not fit; paths start at the top of the spec.
    """
    if spec.trainable is not None:
        registry.check_trainable(spec.trainable, spec.space)
        registry.check_updates(spec.trainable, spec.failure.nan)
        if spec.fidelity is None:
            registry.check_length(spec.trainable)
    if spec.command is not None:
        registry.check_command(spec.command, Path(spec.works_in or ""))
    if spec.engine.curve is not None:
        try:
            registry.resolve_function(spec.engine.curve)
        except ValueError as error:
            raise fail(error, "engine", "curve") from error
    for number, rule in enumerate(spec.stop.rules):
        registry.check_rule(rule, "stop", "rules", number)
    for number, sink in enumerate(spec.tracking.send_to):
        if ":" in sink:
            registry.check_sink(sink, "tracking", "send_to", number)
    return spec
