"""The driver's handle of the recorders: separate processes, one for each sink (outbox.py), and one
for notifications (notifications.py).

MLflow takes 2 s to import and, measured on two cores, 16 ms a trial in the embedded database or
47 ms over HTTP; in the driver's process, slots would wait for that. A recorder's standard input is
a pipe: when the driver closes it, or dies, the recorder sends the rest of the journal and ends. One
that dies earlier is started again: what it did not send is in the journal.
"""

import json
import logging
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from hposvc.errors import StoreError
from hposvc.events import Event, Finished
from hposvc.journal.home import Home
from hposvc.journal.journal import Journal
from hposvc.spec import SweepSpec
from hposvc.spec.sinks import sink_key, sink_type
from hposvc.state.sweep import SweepState
from hposvc.tracking.mlflow_server import (
    QUIET,
    TrialRuns,
    hide_passwords,
    is_recorded,
    tracking_uri,
    why_not,
)
from trainables.contract import appending, shorten

OUT_OF_REACH = 5  # a recorder's exit code when it gave up on its sink
ANSWERS, SILENT = "+", "-"  # what a recorder says of its sink, each time that it changes
FLUSH_S = 5.0  # seconds that an interrupted sweep waits for its recorders

# Run by the new interpreter before it can import hposvc: it takes over the driver's import path.
NICE = 5  # recording gives way to the start of Ray, and to training
BOOT = (
    f"import importlib, json, os, sys; os.nice({NICE}); task = json.loads(sys.stdin.readline()); "
    "sys.path[:] = task.pop('import'); importlib.import_module(task.pop('program')).main(task)"
)
NOTIFICATIONS = "notifications"  # the recorder that sends what `notify` asks for
REPORT = "report"  # the process that writes the report at the end
# Programs by name; what else has a name is a sink. They are imported by the new process alone.
PROGRAMS = {NOTIFICATIONS: "hposvc.tracking.notifications", REPORT: "hposvc.reporting.at_end"}
SWITCH = "HPOSVC_REPORT"  # `off`: no report is written at a sweep's end
LONGEST_S = 30.0  # between two starts of a recorder that dies again and again
POLL_S = 0.05  # seconds between two looks at the recorders of a sweep that is over
WAIT_S = 30.0  # seconds that an ended sweep waits for its notifications

NO_SECRETS: Mapping[str, str] = {}

log = logging.getLogger("hposvc")


class Recorder:
    """Starts a recorder process for each sink with the sweep, and waits for them at the end."""

    def __init__(
        self,
        home: Home,
        sweep: str,
        spec: SweepSpec,
        journal: Journal,
        secrets: Mapping[str, str] = NO_SECRETS,
        reports: bool = True,
    ) -> None:
        self._secrets = secrets  # variables for notifications, beside this process's own
        self._reports = reports  # whether a report is written at the end
        self.report_begun = False  # whether a process writes it
        self.home, self.sweep, self.spec, self.journal = home, sweep, spec, journal
        self.folder = home.folder(sweep, spec.storage)
        self._log = self.folder / "logs" / "recorder.log"
        self.sinks = [name for name in spec.tracking.send_to if not why_not(name, spec)]
        self._names = [*self.sinks, *([NOTIFICATIONS] if spec.notify else [])]
        self._titles: dict[str, str] = {}  # of recorders to start, by name
        self._processes: dict[str, RestartedProcess] = {}  # by name
        self._news: dict[str, _News] = {}  # from the recorders, by name
        self._trial_runs = TrialRuns(journal, sweep, tracking_uri(home, spec))

    def __enter__(self) -> "Recorder":
        for name in self._names:
            sink = None if name == NOTIFICATIONS else sink_type(name)
            if sink is not None and not sink.is_installed:
                message = "%s: nothing goes to %s: %s is not installed; %s, and resume the sweep"
                remedy = f"pip install '{sink.requirement}'"
                log.warning(message, self.sweep, sink.title, sink.package, remedy)
                continue
            self._titles[name] = name if sink is None else sink.title
            self._news[name] = _News()
        for name in self.spec.tracking.send_to:
            if reason := why_not(name, self.spec):
                message = "%s: not recorded in %s: %s; give `tracking` to have it recorded"
                log.warning(message, self.sweep, sink_type(name).title, reason)
        for channel in self.spec.notify:
            for variable in channel.variables:
                if not {**os.environ, **self._secrets}.get(variable):
                    message = "%s: %s will not be notified: %s is not set; export it, and resume"
                    log.warning(message, self.sweep, channel.title, variable)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._begin()
            self._begin_report()
        for name, process in self._processes.items():  # all at once: they work beside each other
            limit_s = WAIT_S if name == NOTIFICATIONS else math.inf
            process.close(limit_s if kind is None else FLUSH_S)
        while any([process.is_awaited() for process in self._processes.values()]):
            self._pass_news_on()
            time.sleep(POLL_S)
        self._pass_news_on()
        for process in self._processes.values():
            if kind is not None:
                process.kill()  # what it did not send waits in the journal
            elif not process.tend():
                message = "%s: not all notifications are sent; process %d tries on for an hour"
                log.warning(message, self.sweep, process.pid)
        for news in self._news.values():
            news.close()

    def on_events(self, state: SweepState, events: Sequence[Event]) -> None:
        """Start recorders, and again those that died; called in each turn of the driver's loop."""
        self._begin()
        for process in self._processes.values():
            process.tend()
        shorten(self._log)
        self._pass_news_on()

    def _begin(self) -> None:
        """Start a recorder for each sink, unless it runs; not while Ray starts."""
        for name, title in self._titles.items():
            if name not in self._processes:
                self._processes[name] = RestartedProcess(
                    f"{self.sweep}: the recorder of {title}", partial(self._start, name)
                )

    def _pass_news_on(self) -> None:
        """Say what recorders found, once that a sink does not answer, and that it does again."""
        for name, news in self._news.items():
            has_uri = name != NOTIFICATIONS and "uri" in sink_type(name).keys
            title = self._titles[name] + (f" ({self.uri})" if has_uri else "")
            answers, messages = news.read()
            for message in messages:
                log.warning("%s: %s", self.sweep, message)
            match answers:
                case False:
                    message = "%s: %s does not answer (logs/recorder.log says why); "
                    log.warning(f"{message}the sweep goes on without it", self.sweep, title)
                case True:
                    log.warning("%s: %s answers", self.sweep, title)

    @property
    def uri(self) -> str:
        """MLflow's URI for people, without a password."""
        return hide_passwords(tracking_uri(self.home, self.spec))

    @property
    def behind(self) -> int:
        """The number of events that some sink was not sent yet; `resume` sends them."""
        return max((self._count_unsent(sink) for sink in self.sinks), default=0)

    @property
    def waiting(self) -> list[str]:
        """The sinks that were not sent all events yet, as people know them."""
        return [sink_type(sink).title for sink in self.sinks if self._count_unsent(sink)]

    def environment(self, trial: str) -> dict[str, str]:
        """Return the variables that tell rank 0 of a trial its MLflow run; empty: no run yet."""
        return self._trial_runs.environment(trial) if is_recorded(self.spec) else {}

    def _begin_report(self) -> None:
        """Start the process that writes the report of an ended sweep; nobody waits for it."""
        if not self._reports or os.environ.get(SWITCH) == "off" or not self._has_ended():
            return
        try:
            process = self._start(REPORT)
        except OSError as error:
            log.warning("%s: no report: %s; try hposvc report %s", self.sweep, error, self.sweep)
            return
        assert process.stdin is not None
        process.stdin.close()
        self.report_begun = True

    def _has_ended(self) -> bool:
        try:
            last = self.journal.last(self.sweep)
            return any(
                isinstance(event, Finished) for _, event in self.journal.read(self.sweep, last - 1)
            )
        except StoreError:  # then the report can wait for `hposvc report`
            return False

    def _count_unsent(self, sink: str) -> int:
        key = sink_key(sink, self.spec.works_in)
        return self.journal.last(self.sweep) - self.journal.cursor(self.sweep, key)

    def _start(self, name: str) -> subprocess.Popen[str]:
        notifies = name == NOTIFICATIONS
        task: dict[str, object] = {
            "import": sys.path,
            "program": PROGRAMS.get(name, "hposvc.tracking.outbox"),
            "path": str(self.home.path),
            "database": self.home.database,  # may hold a password, so it is not an argument
            "tracking_uri": self.home.tracking_uri,
            "sweep": self.sweep,
            "sink": name,
            "secrets": dict(self._secrets) if notifies else {},
        }
        news = self._news.get(name)
        if news is not None:
            task["news"] = news.writing
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with appending(self._log) as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", BOOT],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C must reach only the driver
                env={**QUIET, **os.environ},
                text=True,
                pass_fds=[] if news is None else [news.writing],
            )
        pipe = process.stdin
        assert pipe is not None
        pipe.write(json.dumps(task) + "\n")
        pipe.flush()
        return process


class _News:
    """A pipe on which a recorder, and those that replace it, say a line at a time what they find.

    That is whether the sink answers, or a message for people.
    """

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._answers = True  # as far as was said

    def read(self) -> tuple[bool | None, list[str]]:
        """Return whether the sink answers, if that has changed, and messages."""
        try:
            lines = os.read(self._reading, 1 << 16).decode().splitlines()
        except BlockingIOError:
            return None, []
        messages = [line for line in lines if line not in (ANSWERS, SILENT)]
        before, states = self._answers, [line for line in lines if line in (ANSWERS, SILENT)]
        self._answers = states[-1] == ANSWERS if states else before
        return None if self._answers == before else self._answers, messages

    def close(self) -> None:
        """Close both ends."""
        os.close(self._reading)
        os.close(self.writing)


class RestartedProcess:
    """A process that is started again when it dies before its work is done.

    It comes back at once at first, and after growing pauses if it dies again and again. It is given
    up only after `close`, when the longest pause was of no use.
    """

    def __init__(self, title: str, start: Callable[[], subprocess.Popen[str]]) -> None:
        self._title, self._start = title, start
        self._process, self._started = start(), time.monotonic()
        self._pause_s = 0.0
        self._deadline: float | None = None  # monotonic seconds, from `close` on

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self, limit_s: float) -> None:
        """Tell the process that nothing more comes; it is awaited for `limit_s` seconds."""
        self._deadline, self._pause_s = time.monotonic() + limit_s, 0.0
        self._close_pipe()

    def is_awaited(self) -> bool:
        """Return whether to wait on for a closed process."""
        assert self._deadline is not None
        return not self.tend() and time.monotonic() < self._deadline

    def kill(self) -> None:
        """Kill the process, if it still runs."""
        self._process.kill()
        self._process.wait()

    def tend(self) -> bool:
        """Start the process again if it died, and return whether its work is done, or given up."""
        code, now = self._process.poll(), time.monotonic()
        if code in (0, OUT_OF_REACH):
            return True
        if code is None or now < self._started + self._pause_s:
            return False
        if now > self._started + 2 * LONGEST_S:  # it worked for long
            self._pause_s = 0.0
        if self._deadline is not None and self._pause_s == LONGEST_S:
            return True
        if self._pause_s == 0.0:
            log.warning("%s died (exit code %d); it starts again", self._title, code)
        self._started, self._pause_s = now, min(max(1.0, 2 * self._pause_s), LONGEST_S)
        try:
            self._process = self._start()
        except OSError as error:  # memory or disk are short
            log.warning("%s can't start: %s", self._title, error)
        if self._deadline is not None:
            self._close_pipe()
        return False

    def _close_pipe(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
