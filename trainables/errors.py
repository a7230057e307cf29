"""Exceptions raised by the user's code: their text, and whether memory or a disk ran out.

The text is safe to be sent, stored and printed: an exception's `__str__` may raise, and its text
may have any length or hold characters that UTF-8 can't encode, such as the lone surrogates in a
file name of undecodable bytes.
"""

import errno
import pickle
import re
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

# Begins the line that says in a message, or in a log, how a process ended.
SUMMARY = "[hposvc] "
TRACEBACK = "Traceback (most recent call last)"
# Codes for a terminal (ECMA-48): CSI such as colours, OSC such as links, character sets, others.
CODES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\].*?(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-~])")
BOX = re.compile(r"[ │╭╰┃┏┗]")  # begins a frame of a traceback, and each line of a box around it
# What frameworks print after an error, or as they exit, and what says nothing without its frames.
HINT = re.compile(
    r"Traceback \(most|^(\w+: )?Set the environment variable|HYDRA_FULL_ERROR|^wandb: |\w+Warning: "
)
GROUP = "+ Exception Group "  # stands in the header of a group's traceback
RULE = re.compile(r"^[\s|]*(?:\+[-+]+(?: \d+ -+)?)?")  # beside and between a group's errors
BEGINS = re.compile(r":$|sub-exceptions?\)$|validation errors? for ")  # a text that goes on below
LAST, LONGEST_SHOWN = 3, 300  # lines of an output without a traceback; characters
LONGEST = 20_000  # characters of a message; the traceback of an ordinary error has some 2,000
DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
# Messages of the system, and of torch: its archive writer raises an error that names the position
# in its source and not the reason (2.13: for a path, the message has nothing else).
DISK_FULL_TEXT = re.compile(
    r"No space left on device|[Dd]isk quota exceeded|\[Errno (28|122)\]"
    r"|PytorchStreamWriter failed writing|inline_container\.cc:\d+\][ .]*unexpected pos"
)
# Faults of a file system that does not answer or has gone, most often one over a network; of these
# the second ones can't be of anything but files.
UNREACHABLE = "|".join(
    (
        *("Read-only file system", "Connection timed out", "Connection reset by peer"),
        *("Transport endpoint is not connected", "Host is down", "No route to host"),
        *("No such device(?: or address)?", "Cannot send after transport endpoint shutdown"),
        "Structure needs cleaning",
    )
)
QUOTED = re.compile(r"['\"]([^'\"]+)['\"]")  # paths in messages
BROKEN_FILE = "Input/output error|Stale file handle|Remote I/O error"
STORAGE_FAULT = re.compile(rf"(?:\[Errno \d+\] )?(?:{UNREACHABLE}|(?P<broken>{BROKEN_FILE}))")
# Messages of CUDA and XLA, of Python and numpy, of torch's CPU allocator, of cuBLAS, of C++.
OUT_OF_MEMORY = re.compile(
    r"(?i:out of memory)|MemoryError\b|(?i:can(no|')t allocate memory)|ALLOC_FAILED|bad_alloc"
)


def last_raised(lines: Sequence[str]) -> tuple[int, int] | None:
    """Return where the last traceback in an output begins, and its line that raises, if any.

    The output may put a prefix before each line of it, as torch's `[rank0]: `, or draw a box around
    its frames, as rich does. What Python ignores as it exits is no cause.
    """
    for start in reversed(range(len(lines))):
        prefix, header, _ = lines[start].partition(TRACEBACK)
        if not header or (start > 0 and "Exception ignored" in lines[start - 1]):
            continue
        prefix = "" if "─" in prefix else prefix.replace(GROUP, "| ")
        for end in range(start + 1, len(lines)):
            line = lines[end].removeprefix(prefix)
            if lines[end].startswith(prefix) and line.strip() and not BOX.match(line):
                return start, end
    return None


def raised_line(lines: Sequence[str]) -> str:
    """Return the line of an output that raises, or an empty text."""
    if (found := last_raised(lines)) is None:
        return ""
    start, end = found
    prefix = lines[start].partition(TRACEBACK)[0].replace(GROUP, "| ")
    line, *rest = [RULE.sub("", text.removeprefix(prefix)).strip() for text in lines[end:]]
    # What an exception is about may stand below.
    below = [text for text in rest[:LAST] if text] if BEGINS.search(line) else []
    return " ".join([line, *below[: 1 if line.endswith(":") else 2]])


def describe_output(output: str, status: int = 1) -> str:
    """Return what an output says about a failure: the line that raises, else its last lines.

    Args:
        status: of the program. Python exits with 1 after an error: with another one, an error that
            stands before the last line was caught.
    """
    lines = output.splitlines()
    own = [line for line in lines if re.search(r"\w", line) and not HINT.search(line)]
    found = last_raised(lines)
    if found is not None and (status <= 1 or own[-1:] == [lines[found[1]]]):
        return raised_line(lines)[:LONGEST_SHOWN]
    outer = [line for line in own if not line.startswith((" ", "\t"))]
    own = [line.strip() for line in (outer if outer[LAST - 1 :] else own)]
    several = "s" if own[1:] else ""
    return f"its last line{several}: {' | '.join(own[-LAST:])[-LONGEST_SHOWN:]}" if own else ""


def text_of(error: BaseException) -> str:
    """Return the exception's own text."""
    try:
        return str(error)
    except BaseException as failure:  # noqa: BLE001 - `__str__` is the user's code too
        return f"(no text: its __str__ raised {type(failure).__name__})"


def traceback_of(error: BaseException) -> str:
    """Return the exception with its stack, its causes included, as Python prints it."""
    try:
        return encodable("".join(traceback.format_exception(error)))
    except Exception:  # noqa: BLE001 - attributes of an exception may be the user's code as well
        return encodable(f"{type(error).__name__}: {text_of(error)}\n")


def picklable(error: Exception) -> Exception:
    """Return the exception, or a RuntimeError with its type and text if it cannot be pickled."""
    try:
        if type(pickle.loads(pickle.dumps(error))) is type(error):
            return error
    except Exception:  # noqa: BLE001 - pickling an exception may run any code
        pass
    return RuntimeError(shortened(f"{type(error).__name__}: {text_of(error)}"))


def encodable(text: str) -> str:
    """Return the text with an escape in place of each character that UTF-8 can't encode."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def shortened(text: str) -> str:
    """Return the text in encodable form, cut to its head and tail if longer than LONGEST."""
    text = encodable(text)
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    left_out = f"\n... {len(text) - 2 * half} characters left out ...\n"
    return f"{text[:half]}{left_out}{text[-half:]}"


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether an error, or one that led to it, says that a disk or a quota was full."""
    return any(
        (isinstance(cause, OSError) and cause.errno in DISK_FULL_ERRNOS)
        or DISK_FULL_TEXT.search(text_of(cause))
        for cause in causes(error, contexts=True)
    )


def is_storage_fault(error: BaseException | None, folder: Path) -> bool:
    """Return whether an error, or one that led to it, is a fault of the file system of a folder."""
    return any(
        tells_storage_fault(text_of(cause), folder) for cause in causes(error, contexts=True)
    )


def tells_storage_fault(text: str, folder: Path) -> bool:
    """Return whether a text tells of a fault of the file system of a folder.

    A write to an open file fails without the file's name: then it counts as one of the folder's.
    """
    for line in text.splitlines():
        if fault := STORAGE_FAULT.search(line):
            rest = line.replace(fault[0], "").replace("I/O", "")
            named = [Path(path).resolve() for path in QUOTED.findall(rest)]
            below = any(path.is_relative_to(folder.resolve()) for path in named)
            if below or f"{folder}" in rest or (fault["broken"] and "/" not in rest):
                return True
    return False


def out_of_memory(error: BaseException | None) -> bool:
    """Return whether an error, or one that it was raised from, says that memory ran out."""
    return any(
        OUT_OF_MEMORY.search(f"{type(cause).__name__}: {text_of(cause)}") for cause in causes(error)
    )


def causes(error: BaseException | None, contexts: bool = False) -> Iterator[BaseException]:
    """Yield an error and those that it was raised from, each once: users' code can make a circle.

    Args:
        contexts: where no cause is given, go on with the error that was being handled.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (error.__context__ if contexts else None)
