"""Writing of checkpoints by a thread, while training goes on."""

import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class AsyncWriter:
    """A thread for at most one piece of work at a time, beside training."""

    thread: threading.Thread | None = None
    error: BaseException | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Start the work in a thread; earlier work must have been waited for."""

        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - raised by wait()
                self.error = error

        self.thread = threading.Thread(target=run, name="checkpoint")
        self.thread.start()

    def wait(self) -> None:
        """Wait until the work is done.

        Raises:
            BaseException: the error that the work ended with.
        """
        if self.thread is not None:
            self.thread.join()
        self.thread, error, self.error = None, self.error, None
        if error is not None:
            raise error
