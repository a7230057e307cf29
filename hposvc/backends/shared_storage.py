"""Check that all nodes can share checkpoints, through a common folder or an object store."""

from cluster.shared_storage import nodes_without
from hposvc.backends.backend import Setting
from hposvc.errors import OutOfReach
from hposvc.journal.home import VARIANTS
from hposvc.spec.paths import checkpoints_url
from hposvc.spec.variants import stored
from trainables.contract import StoreFailed
from trainables.storage import stores


def check_shared(setting: Setting) -> None:
    """Check that every node of the cluster sees the sweep's folder.

    With checkpoints in a store, check instead that this process can use the store. This process
    must have joined the cluster.

    Raises:
        OutOfReach: some nodes do not; the message names all of them and the remedy.
    """
    spec, own = setting.spec, setting.folder / VARIANTS
    has_code = spec.variants is not None and stored(spec, own) == own
    if (url := checkpoints_url(setting.sweep, spec.storage)) is not None:
        try:
            stores.probe(url)
        except StoreFailed as error:
            raise OutOfReach(f"{error}") from error
        if not has_code and (spec.command is None or spec.resources.ranks == 1):
            return  # only a command's ranks write a checkpoint together that a single rank reports
    if setting.address is None:
        return  # Ray runs on this machine alone
    other = "send its versions of the code by `hposvc submit`" if has_code else "to a store's URL"
    remedy = f"set `storage` to a folder that all nodes mount at the same path, or {other}"
    try:
        blind = nodes_without(setting.folder)
    except OSError as error:
        raise OutOfReach(f"storage {setting.folder}: {error.strerror}", fix=remedy) from error
    if blind:
        details = "; ".join(blind)
        raise OutOfReach(
            f"storage {setting.folder} is not shared by all nodes: {details}. {remedy}"
        )
