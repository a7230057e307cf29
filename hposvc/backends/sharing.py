"""A sweep's folder must be one folder on every node: checkpoints go from rank to rank there."""

from cluster.sharing import find_blind
from hposvc.backends.backend import OutOfReach, Setting

REMEDY = "set `storage` to a folder that all nodes mount at the same path"


def check_shared(setting: Setting) -> None:
    """See that every node of the cluster that this process has joined sees the sweep's folder.

    Raises:
        OutOfReach: one does not; names each, and the remedy.
    """
    if setting.address is None:
        return  # this machine's own
    try:
        blind = find_blind(setting.folder)
    except OSError as error:
        raise OutOfReach(f"storage {setting.folder}: {error.strerror}; {REMEDY}") from error
    if blind:
        listed = "; ".join(blind)
        raise OutOfReach(f"storage {setting.folder} is not shared by all nodes: {listed}. {REMEDY}")
