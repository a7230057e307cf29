"""Warnings of a call of a user's plug-in that does not return: the sweep waits for it."""

import logging
import sys
import threading
import traceback
from collections.abc import Mapping
from types import FrameType

from hposvc.driver import proposals, user_stop_rules
from hposvc.errors import is_built_in, source_place
from hposvc.schedulers import guarded

SLOW_S = 60.0  # between two looks; a call that is there in both is told of
CALLERS = {  # the files that call plug-ins, each with the key of the spec that names them
    proposals.__file__: "search.method",
    guarded.__file__: "scheduler.type",
    user_stop_rules.__file__: "stop.rules",
}

log = logging.getLogger("hposvc")


class SlowPlugIns:
    """Warns once of each call of a user's plug-in that takes long, with the line where it is.

    A thread looks at the stacks of all threads, so calls cost nothing.

    Args:
        plug_ins: by the key of the spec and what it names, as `search.method my_module:Mine`.
    """

    def __init__(self, sweep: str, plug_ins: Mapping[str, object]) -> None:
        self._sweep = sweep
        self._names: dict[tuple[str, str], str] = {}  # by the key of the spec, and the file
        for name, plug_in in plug_ins.items():
            if not is_built_in(plug_in):
                place = name.partition(" ")[0], source_place(plug_in)[0]
                self._names[place] = (
                    f"{self._names[place]} or {name}" if place in self._names else name
                )
        self._files = {file for _, file in self._names}
        self._seen: set[FrameType] = set()  # the calls at the last look
        self._warned: set[FrameType] = set()
        self._closed = threading.Event()

    def __enter__(self) -> "SlowPlugIns":
        if self._names:
            threading.Thread(target=self._run, name="slow plug-ins", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(SLOW_S):
            self.look()

    def look(self) -> None:
        """Warn of the calls that were there at the last look already."""
        stacks = sys._current_frames().values()
        calls = {call: place for call, *place in map(self._call_in, stacks) if call is not None}
        for call in calls.keys() & self._seen - self._warned:
            name, line = calls[call]
            file = call.f_code.co_filename
            message = (
                "%s: %s has not returned for %.0f s (%s:%d), and the sweep waits for it; interrupt "
                "the sweep and mend it, and `hposvc resume` goes on"
            )
            log.warning(message, self._sweep, name, SLOW_S, file, line)
            self._warned.add(call)
        self._seen = {*calls}
        self._warned &= self._seen

    def _call_in(self, frame: FrameType) -> tuple[FrameType | None, str, int]:
        """Return the frame of a plug-in's call in a thread, its name, and its present line."""
        own = [
            (entry, line)
            for entry, line in traceback.walk_stack(frame)
            if entry.f_code.co_filename in self._files
        ]
        if not own:
            return None, "", 0
        call, caller = own[-1][0], own[-1][0].f_back
        key = "" if caller is None else CALLERS.get(caller.f_code.co_filename, "")
        name = self._names.get((key, call.f_code.co_filename))
        return (None, "", 0) if name is None else (call, name, own[0][1])
