"""Why a rank ended, from the error that Ray gives."""

import re

from ray.exceptions import OutOfMemoryError, RayActorError, RayTaskError

from hposvc.errors import OutOfReach, fail
from trainables.contract import CodeChanged, shortened, text_of

DIED = "worker process has died"  # Ray (2.60) does not know how, and says so in 600 characters
LOW_MEMORY = re.compile(r"was ([\d.]+ ?GB)(?: used)? / ([\d.]+ ?GB)")  # of the node


def describe_error(error: BaseException) -> str:
    """Describe the error of a rank in a line, without Ray's own stack."""
    if isinstance(error, RayTaskError):
        error = error.cause
        return f"{type(error).__name__}: {shortened(text_of(error))}"
    if isinstance(error, RayActorError):
        reason = str(error).strip().splitlines()[-1].strip()  # the cause, if Ray gives one
        if DIED in reason:
            return "a process of the slot died, and its log is not here to say why"
        hint = "; install it on every node of the cluster" if "No module named" in reason else ""
        return f"a process of the slot died: {reason}{hint}"
    return f"{type(error).__name__}: {error}"


def died(error: BaseException | None) -> bool:
    """Return whether a rank's process is gone, and not its node."""
    if isinstance(error, OutOfMemoryError):
        return True
    return isinstance(error, RayActorError) and (DIED in f"{error}" or low_memory(error) != "")


def low_memory(error: BaseException | None) -> str:
    """Return what Ray says of its node's memory, if Ray killed the rank to free some."""
    match = LOW_MEMORY.search(f"{error}")
    return f"{match[1]} of the node's {match[2]} were in use" if match else ""


def start_error(error: BaseException) -> Exception:
    """Return the error to raise when no rank can start; `is_permanent` is true of `error`."""
    if isinstance(error, RayTaskError) and isinstance(error.cause, CodeChanged):
        return fail(f"{error.cause}")
    return OutOfReach(f"a rank could not start: {describe_error(error)}")


def is_permanent(error: BaseException | None) -> bool:
    """Whether a rank that died of this error while starting will die every time."""
    # The connection to the coordinator: not the trainable's fault.
    connection_errors = (OSError, EOFError)
    return isinstance(error, RayTaskError) and not isinstance(error.cause, connection_errors)
