"""Whether an error says that there was no room left to write."""

import errno
import re

FULL = (errno.ENOSPC, errno.EDQUOT)
# In the words of the system, and of torch: its writer of archives throws an error of its own, which
# names the place where it stands and not the reason (2.13: a path's tells nothing else).
NO_ROOM = re.compile(
    r"No space left on device|[Dd]isk quota exceeded|\[Errno (28|122)\]"
    r"|PytorchStreamWriter failed writing|inline_container\.cc:\d+\][ .]*unexpected pos"
)


def out_of_room(error: BaseException | None) -> bool:
    """Whether an error is, says or came after one that says that a disk or a quota was full."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, OSError) and error.errno in FULL:
            return True
        if NO_ROOM.search(f"{error}"):
            return True
        error = error.__cause__ or error.__context__
    return False
