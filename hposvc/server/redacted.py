"""Keep secrets out of what is printed while code of users runs in this process, and of errors."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace

from hposvc.errors import SpecError
from trainables.contract import filter_output, redact


@contextmanager
def redacted_output(secrets: Collection[str]) -> Iterator[None]:
    """Redact secrets in all output of this process, and in the messages of SpecErrors."""
    try:
        with filter_output(secrets):
            yield
    except SpecError as error:
        redacted = (
            replace(
                problem,
                message=redact(problem.message, secrets),
                fix=redact(problem.fix, secrets),
            )
            for problem in error.problems
        )
        raise SpecError(redacted) from None
