"""The screen of `watch`, with Textual: it reads the sweep, shows it, and sends requests.

A thread reads new events twice a second at most; they are applied here, between two frames, so that
nothing is drawn while it changes. Only rows on the screen are drawn, and only those that changed.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, takewhile
from typing import ClassVar

from rich.console import Group, RenderableType
from rich.text import Text
from textual import events, on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Input, Static

from hposvc import spec as specs
from hposvc.analysis.audit import Line
from hposvc.analysis.audit.trial_audit import TrialAudit
from hposvc.errors import OutOfReach, StoreError
from hposvc.events import DriverState, Event, Verb
from hposvc.journal.follow import Follow
from hposvc.open_sweep import SweepSource
from hposvc.state.receipt import RequestReceipt
from hposvc.state.sweep import SweepState
from hposvc.views import dashboard
from hposvc.views.console import Plain
from hposvc.views.result import describe_receipt
from hposvc.views.watch import details, steering
from hposvc.views.watch.board import ORDERS, STATES, Board
from hposvc.views.watch.header import best_so_far, header
from hposvc.views.watch.steering import SteeringChoice, SteeringQuestion

LOOK_S = 0.5  # between two looks at the journal
MOST = 5000  # events applied between two frames
LOG_BYTES = 16_384
LOG_LINES = 500
WIDE = 150  # columns from which on the selected trial is beside the table
SAID_S = 12.0  # for which an answer stays

Steer = Callable[[Verb, str | None, Mapping[str, object]], RequestReceipt]

HELP = """\
up, down, page up, page down, home, end: choose a trial

left, right        curve, decisions, configuration or log of the trial
enter              the trial on the whole screen, and back
/                  show trials of which all words and conditions hold,
                   as in:  adamw lr>0.01 val/accuracy>=0.9 state=FAILED
f                  show trials of one state, then of the next
esc                show all trials
o                  order: best, newest, oldest, longest, furthest first
p                  pause the sweep; hposvc resume goes on
s, k               stop or kill the trial or the sweep; it asks which
e                  extend the sweep by more trials
r                  try the trial, or all failed ones, again
q                  leave; the sweep goes on
"""
KEYS = "↑↓ trial  ←→ view  / filter  f state  o order  p s k e r steer  ? help  q quit"


class TrialRows(ScrollView, can_focus=True):
    """The table of trials: as long as there are trials, drawn as far as it is on the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "move(-1000000000)", show=False),
        Binding("end", "move(1000000000)", show=False),
    ]

    class Chosen(Message):
        """Another trial was selected."""

    def __init__(self, board: Board) -> None:
        super().__init__(id="trials")
        self.board = board
        self.now = board.state.now
        self.chosen = next(iter(board.names), None)
        self._drawn: list[str] = []

    @property
    def place(self) -> int:
        """The row of the selected trial; 0 if it is not shown."""
        return self._places.get(self.chosen or "", 0)

    @property
    def _places(self) -> dict[str, int]:
        if self._drawn is not self.board.names:
            self._drawn = self.board.names
            self._place_of = {name: place for place, name in enumerate(self._drawn)}
        return self._place_of

    def rearranged(self) -> None:
        """Show the board's trials, which may be others, or in another order."""
        names = self.board.names
        self.virtual_size = Size(self.size.width, len(names) + 1)
        if self.chosen not in self._places:
            self.chosen = names[0] if names else None
            self.post_message(self.Chosen())
        self.refresh()

    def changed(self, touched: set[str]) -> None:
        """Draw the touched trials again, as far as they are on the screen."""
        top = self.scroll_offset.y
        for row, name in enumerate(self.board.names[top : top + self.size.height]):
            if name in touched:
                self.refresh_line(top + row + 1)

    def action_move(self, rows: int) -> None:
        names = self.board.names
        if names:
            self.choose(names[max(0, min(len(names) - 1, self.place + rows))])

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.size.height - 2))

    def choose(self, name: str) -> None:
        """Select a trial, and scroll to it."""
        self.chosen = name
        room, place = max(1, self.size.height - 1), self.place
        top = self.scroll_offset.y
        if not top <= place < top + room:
            self.scroll_to(y=place if place < top else place - room + 1, animate=False)
        self.refresh()
        self.post_message(self.Chosen())

    def on_click(self, event: events.Click) -> None:
        place = event.y - 1 + self.scroll_offset.y
        if event.y > 0 and place < len(self.board.names):
            self.choose(self.board.names[place])

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        if y == 0:
            return self._strip(self.board.head(width))
        place = y - 1 + self.scroll_offset.y
        if place >= len(self.board.names):
            return Strip.blank(width)
        name = self.board.names[place]
        return self._strip(self.board.row(name, width, self.now, name == self.chosen))

    def _strip(self, line: Text) -> Strip:
        strip = Strip(line.render(self.app.console)).adjust_cell_length(line.cell_len)
        return strip.apply_style(self.rich_style)


class AskScreen(ModalScreen[SteeringChoice | None]):
    """A question before a request is sent."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", show=False)]

    def __init__(self, question: SteeringQuestion) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static(Text(self.question.title, "bold"))
            for choice in self.question.choices:
                yield Static(Text.assemble((f" {choice.key}  ", "reverse"), f"  {choice.text}"))
            if self.question.number:
                yield Input(placeholder=self.question.number, type="integer", compact=True)
            yield Static(Text(" esc  do nothing", "bright_black"))

    def on_key(self, event: events.Key) -> None:
        for choice in self.question.choices:
            if event.key == choice.key:
                event.stop()
                self.dismiss(choice)

    @on(Input.Submitted)
    def send_number(self, event: Input.Submitted) -> None:
        """Send the number, or say what is wrong with it."""
        try:
            self.dismiss(steering.extension(int(event.value or 0)))
        except ValueError:
            event.input.value = ""
            event.input.placeholder = "a whole number from 1"


class Help(ModalScreen[None]):
    """The keys."""

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            yield Static(Text(HELP))
            yield Static(Text("any key goes back", "bright_black"))

    def on_key(self, event: events.Key) -> None:
        event.stop()
        self.dismiss()


class WatchApp(App[None]):
    """A sweep on the whole screen."""

    CSS = """
    Screen { layout: vertical; }
    #head { height: auto; }
    #body { height: 1fr; layout: vertical; }
    #trials { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
    #trials, #detail { scrollbar-background: ansi_default; scrollbar-color: ansi_bright_black; }
    #trial { height: 50%; border-top: solid ansi_bright_black; }
    #tabs { height: 1; }
    #detail { height: 1fr; scrollbar-size-vertical: 1; }
    #foot { height: auto; max-height: 3; }
    #query { height: 1; display: none; }
    .wide #body { layout: horizontal; }
    .wide #trials { width: 60%; height: 100%; }
    .wide #trial { width: 40%; height: 100%; border-top: none; }
    .wide #trial { border-left: solid ansi_bright_black; }
    .zoomed #trials { display: none; }
    .zoomed #trial { height: 100%; width: 100%; border: none; }
    AskScreen, Help { align: center middle; }
    .box { width: auto; max-width: 78; height: auto; padding: 0 1; }
    .box { border: solid ansi_bright_black; }
    .box Static { width: auto; max-width: 74; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", show=False),
        Binding("question_mark", "help", show=False),
        Binding("slash", "query", show=False),
        Binding("escape", "all", show=False),
        Binding("f", "state", show=False),
        Binding("o", "order", show=False),
        Binding("left", "view(-1)", show=False),
        Binding("right", "view(1)", show=False),
        Binding("tab", "view(1)", show=False, priority=True),
        Binding("enter", "zoom", show=False),
        *(Binding(key, f"steer('{verb}')", show=False) for key, verb in steering.KEYS.items()),
    ]
    ENABLE_COMMAND_PALETTE = False
    TITLE = "hposvc watch"

    def __init__(
        self,
        source: SweepSource,
        follow: Follow[SweepState],
        steer: Steer,
        starts_drivers: bool = False,
    ) -> None:
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self.source, self.follow = source, follow
        self.steer, self.starts_drivers = steer, starts_drivers
        self.sweep = follow.row.id
        self.driver: DriverState = "alive"
        self.board = Board(follow.state)
        self.table = TrialRows(self.board)
        self.view = details.VIEWS[0]
        self.note = ""  # why the journal can't be read; empty: it can
        self._said, self._said_at = "", 0.0
        self._shown: dict[str, object] = {}  # what each part depends on as it is shown
        self._bests_of: tuple[str | None, float | None] = (None, None)
        self._bests_then: Sequence[float] = ()
        self._audit: Follow[TrialAudit] | None = None
        self._lines: list[Line] | None = None  # of the selected trial; None: being read
        self._log_text: str | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        with Vertical(id="body"):
            yield self.table
            with Vertical(id="trial"):
                yield Static(id="tabs")
                with VerticalScroll(id="detail", can_focus=False):
                    yield Static(id="text")
        yield Input(id="query", compact=True, placeholder="words, or conditions like lr>0.01")
        yield Static(id="foot")

    def on_mount(self) -> None:
        self.table.focus()
        self.table.rearranged()
        self.draw()
        self.look()
        self.set_interval(LOOK_S, self.look)

    def on_resize(self, event: events.Resize) -> None:
        self.screen_stack[0].set_class(event.size.width >= WIDE, "wide")
        self.call_after_refresh(self.draw)

    def look(self) -> None:
        """Read what is new, unless the last reading goes on."""
        if not any(worker.name == "read" and worker.is_running for worker in self.workers):
            self._read()

    @work(thread=True, name="read", exit_on_error=False)
    def _read(self) -> None:
        row = self.follow.row
        try:
            # First the driver: one that ends now writes its events before it lets go.
            driver = self.source.driver_of(row)
            waiting = self.source.waiting_of(row)
            new = list(islice(self.source.read(row.id, self.follow.seq), MOST))
        except (OutOfReach, StoreError) as error:
            note = f"no answer, trying again: {error}"
            self.call_from_thread(self._take, [], self.driver, note)
            return
        note = "" if waiting is None else waiting.describe()
        self.call_from_thread(self._take, new, driver, note)

    def _take(self, new: list[tuple[int, Event]], driver: DriverState, note: str) -> None:
        """Apply new events, and draw what they changed."""
        events: list[Event] = []
        self.follow.apply(new, events.append)
        self.note, self.driver = note, driver
        touched = self.board.take(events, driver)
        if touched or events:
            before = self.board.names
            self.board.arrange()
            if before == self.board.names:
                self.table.changed(touched)
            else:
                self.table.rearranged()
        self.draw()
        if self.table.chosen in touched or self.view == "log":
            self.read_trial()

    def draw(self) -> None:
        """Draw the head, the selected trial and the foot; the table draws itself."""
        state = self.follow.state
        seconds = (
            dashboard.elapsed_s(state, time.time()) if self.driver == "alive" else state.elapsed_s
        )
        now = state.now + seconds - state.elapsed_s
        if int(now) != int(self.table.now):
            self.table.changed({trial.id for trial in state.trials.running()})
        self.table.now = now
        lines = header(self.sweep, state, seconds, self.driver, self._bests(), self._hint())
        self._put("#head", lambda: Group(*lines), lines)
        self._put_foot()
        self._draw_trial()

    def _put(self, place: str, content: Callable[[], RenderableType], depends_on: object) -> None:
        """Show content where it stands, unless all that it depends on is as it was."""
        if self._shown.get(place) != depends_on:
            self._shown[place] = depends_on
            self.query_one(place, Static).update(Plain(content()))

    def _put_foot(self) -> None:
        foot = Text(KEYS, "bright_black", no_wrap=True, overflow="ellipsis")
        if self._said and time.monotonic() - self._said_at < SAID_S:
            foot = Text(self._said, "bold yellow")
        self._put("#foot", lambda: foot, foot)

    def _bests(self) -> Sequence[float]:
        """Return the best values so far, made anew when there is a better one."""
        best = self.follow.state.best
        value = None if best is None else self.follow.state.trials[best].value
        if self._bests_of != (best, value):
            self._bests_of, self._bests_then = (best, value), best_so_far(self.follow.state)
        return self._bests_then

    def _hint(self) -> str:
        """Return what else is to be said about the sweep."""
        state, resume = self.follow.state, f"hposvc resume {self.sweep}"
        if self.note:
            return self.note
        if state.state in ("RUNNING", "QUEUED") and self.driver != "alive":
            return f"no driver is at work; {resume} starts one, or a server does so"
        if state.state == "PAUSED":
            return f"paused; go on with: {resume}"
        return ""

    def say(self, text: str) -> None:
        """Show an answer in the last line for a while."""
        self._said, self._said_at = text, time.monotonic()
        self._put_foot()

    def _draw_trial(self) -> None:
        tabs = Text(f"{self.board.count()}  ", "bright_black")
        name = self.table.chosen
        if name is not None:
            tabs = Text.assemble((f"{name} ", "bold"))
            for view in details.VIEWS:
                tabs.append(f" {view} ", "reverse" if view == self.view else "")
            tabs.append(f"  {self.board.count()}", "bright_black")
        tabs.no_wrap, tabs.overflow = True, "ellipsis"
        self._put("#tabs", lambda: tabs, tabs)
        room, state = self.query_one("#detail").size, self.follow.state
        if name is None:
            empty = Text("no trial is like that" if state.trials else "no trials yet")
            self._put("#text", lambda: empty, empty)
            return
        trial = state.trials[name]
        seen = (name, self.view, room, trial.step, trial.state, int(trial.seconds_at(state.now)))
        read = (len(self._lines or ()), self._lines is None, self._log_text)
        self._put("#text", lambda: self._detail(name, room), (seen, read))

    def _detail(self, name: str, room: Size) -> RenderableType:
        """Return the view of a trial."""
        state = self.follow.state
        match self.view:
            case "curve":
                return details.curve(state, name, room.width - 1, room.height)
            case "decisions":
                return details.decisions(self._lines, state.spec.unit)
            case "configuration":
                return details.configuration(state, name)
        return details.log(self._log_text, LOG_LINES)

    @on(TrialRows.Chosen)
    def show_trial(self) -> None:
        """Show another trial."""
        self._audit, self._lines, self._log_text = None, None, None
        self.query_one("#detail").scroll_home(animate=False)
        self._draw_trial()
        self.read_trial()

    def read_trial(self) -> None:
        """Read what the view needs besides the state."""
        if self.table.chosen is None:
            return
        if self.view == "decisions":
            self._read_decisions(self.table.chosen)
        elif self.view == "log":
            self._read_log(self.table.chosen)

    @work(thread=True, exclusive=True, group="trial", exit_on_error=False)
    def _read_decisions(self, name: str) -> None:
        """Fold the journal for one trial; a later look adds what is new."""
        audit, row = self._audit, self.follow.row
        if audit is None or audit.state.trial != name:
            audit = Follow(self.source, row, lambda: TrialAudit(specs.restore(row.spec), name))
        events = self.source.read(row.id, audit.seq)
        audit.apply(takewhile(lambda _: self.table.chosen == name, events))
        self.call_from_thread(self._show_decisions, audit)

    def _show_decisions(self, audit: Follow[TrialAudit]) -> None:
        if audit.state.trial == self.table.chosen:
            self._audit, self._lines = audit, list(audit.state.lines)
            self._draw_trial()

    @work(thread=True, exclusive=True, group="trial", exit_on_error=False)
    def _read_log(self, name: str) -> None:
        try:
            parts = self.source.log_parts(self.follow.row, name, 0, LOG_BYTES)
            text = parts[-1]["text"] if parts else ""
        except (OutOfReach, StoreError, OSError) as error:
            text = f"the log can't be read: {error}"
        self.call_from_thread(self._show_log, name, text)

    def _show_log(self, name: str, text: str) -> None:
        if name == self.table.chosen:
            self._log_text = text
            self._draw_trial()
            if self.view == "log":
                self.query_one("#detail").scroll_end(animate=False)

    def action_view(self, step: int) -> None:
        place = details.VIEWS.index(self.view)
        self.view = details.VIEWS[(place + step) % len(details.VIEWS)]
        self.query_one("#detail").scroll_home(animate=False)
        self._draw_trial()
        self.read_trial()

    def action_zoom(self) -> None:
        self.screen.toggle_class("zoomed")
        self.call_after_refresh(self._draw_trial)

    def action_query(self) -> None:
        line = self.query_one("#query", Input)
        line.styles.display = "block"
        line.focus()

    @on(Input.Submitted, "#query")
    def filter_by_query(self, event: Input.Submitted) -> None:
        """Show the trials that the query names, or say what is wrong with it."""
        try:
            self.board.ask(event.value)
        except ValueError as error:
            self.say(f"{error}")
            return
        self._close_query()

    def _close_query(self) -> None:
        self.query_one("#query", Input).styles.display = "none"
        self.table.focus()
        self._rearrange()

    def action_all(self) -> None:
        """Show all trials, beside the selected one."""
        self.screen.remove_class("zoomed")
        self.query_one("#query", Input).value = ""
        self.board.only = None
        self.board.ask("")
        self._close_query()

    def action_state(self) -> None:
        place = STATES.index(self.board.only)
        self.board.only = STATES[(place + 1) % len(STATES)]
        self._rearrange()

    def action_order(self) -> None:
        place = ORDERS.index(self.board.order)
        self.board.order = ORDERS[(place + 1) % len(ORDERS)]
        self._rearrange()

    def _rearrange(self) -> None:
        self.board.arrange()
        self.table.rearranged()
        self.call_after_refresh(self._draw_trial)

    def action_help(self) -> None:
        self.push_screen(Help())

    def action_steer(self, verb: Verb) -> None:
        """Ask what to do, and send it; what can't be done is said instead."""
        asked = steering.question(verb, self.sweep, self.follow.state, self.table.chosen)
        if not asked.choices and not asked.number:
            self.say(asked.title)
            return
        self.push_screen(AskScreen(asked), self._send)

    def _send(self, choice: SteeringChoice | None) -> None:
        if choice is not None:
            self.say(f"sending: {choice.verb} {choice.trial or self.sweep} …")
            self._request(choice)

    @work(thread=True, group="steer", exit_on_error=False)
    def _request(self, choice: SteeringChoice) -> None:
        try:
            receipt = self.steer(choice.verb, choice.trial, choice.changes)
            answer = describe_receipt(receipt, choice.verb, choice.trial, self.starts_drivers)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is said; the screen stays
            answer = f"refused: {error}"
        self.call_from_thread(self.say, answer)
        self.call_from_thread(self.look)


def show(
    source: SweepSource, follow: Follow[SweepState], steer: Steer, starts_drivers: bool
) -> None:
    """Show a sweep on the whole screen until somebody leaves.

    Args:
        steer: sends a request for the sweep or a trial, with changes of limits.
        starts_drivers: a server goes on with the sweep when it is extended or retried.
    """
    WatchApp(source, follow, steer, starts_drivers).run()
