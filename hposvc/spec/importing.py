"""What of a spec only the user's own code can tell."""

from typing import TYPE_CHECKING

from hposvc import plugins
from hposvc.reading.problems import fail

if TYPE_CHECKING:
    from hposvc.spec import SweepSpec


def imported(spec: "SweepSpec") -> "SweepSpec":
    """The spec, once its trainable, command or curve was found and fits.

    Raises:
        SpecError: it cannot be imported, or does not fit; paths are from the spec's top.
    """
    if spec.trainable is not None:
        plugins.check_trainable(spec.trainable, spec.space)
        plugins.check_updates(spec.trainable, spec.failure.nan)
    if spec.command is not None:
        plugins.check_command(spec.command)
    if spec.engine.curve is not None:
        try:
            curve = plugins.resolve(spec.engine.curve)
        except ValueError as error:
            raise fail(str(error), "engine", "curve") from error
        if not callable(curve):
            raise fail(f"{spec.engine.curve} is no function", "engine", "curve")
    return spec
