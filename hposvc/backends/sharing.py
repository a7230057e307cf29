"""Checkpoints go from rank to rank: by a folder that all nodes see, or by a store."""

from cluster.sharing import find_blind
from hposvc.backends.backend import OutOfReach, Setting
from hposvc.home import checkpoints_url
from trainables.checkpoints import stores
from trainables.checkpoints.stores import StoreFailed

REMEDY = "set `storage` to a folder that all nodes mount at the same path, or to a store's URL"


def check_shared(setting: Setting) -> None:
    """See that every node of the cluster that this process has joined sees the sweep's folder.

    Where checkpoints are in a store: that this process can use it.

    Raises:
        OutOfReach: one does not; names each, and the remedy.
    """
    if (url := checkpoints_url(setting.sweep, setting.spec.storage)) is not None:
        try:
            stores.probe(url)
        except StoreFailed as error:
            raise OutOfReach(f"{error}") from error
        if setting.spec.command is None or setting.spec.resources.ranks == 1:
            return  # a command's ranks may write one checkpoint together, of which one rank tells
    if setting.address is None:
        return  # this machine's own
    try:
        blind = find_blind(setting.folder)
    except OSError as error:
        raise OutOfReach(f"storage {setting.folder}: {error.strerror}; {REMEDY}") from error
    if blind:
        listed = "; ".join(blind)
        raise OutOfReach(f"storage {setting.folder} is not shared by all nodes: {listed}. {REMEDY}")
