"""Writing that goes on while training does."""

import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Behind:
    """At most one piece of work that a thread does while training goes on."""

    thread: threading.Thread | None = None
    error: BaseException | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Begin; what was begun before must be over."""

        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
                self.error = error

        self.thread = threading.Thread(target=run, name="checkpoint")
        self.thread.start()

    def wait(self) -> None:
        """Until it is done.

        Raises:
            BaseException: what it came to.
        """
        if self.thread is not None:
            self.thread.join()
        self.thread, error, self.error = None, self.error, None
        if error is not None:
            raise error
