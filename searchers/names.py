"""Names of parameters, methods and options: which are allowed, and which one was meant."""

import difflib
import re
from collections.abc import Iterable

LONGEST = 250  # MLflow, where every parameter ends up, takes no longer names
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


def is_name(text: object) -> bool:
    """Whether `text` is an identifier, or several joined by dots."""
    return isinstance(text, str) and len(text) <= LONGEST and _NAME.fullmatch(text) is not None


def nearest(wrong: str, known: Iterable[str]) -> str:
    """A hint for an error message: the name that was meant, or all that there are."""
    names = sorted(known)
    close = difflib.get_close_matches(wrong[:LONGEST], names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    if not names:
        return "there are none here"
    rest = ", ..." if len(names) > 12 else ""
    return f"known: {', '.join(names[:12])}{rest}"
