"""Orders in this process, one at a time, without Ray: for debuggers.

The trainable runs in a thread; where it reports, it waits until the driver has taken the report,
so that a breakpoint anywhere holds everything.
"""

JOIN_S = 5.0  # for a function that was told to stop; it is a daemon thread beyond that


class Local:
    """One slot, in this process."""

    virtual: ClassVar[bool] = False

    def __init__(self, setting: Setting) -> None:
        spec = setting.spec
        self._place = Place(
            trainable=str(spec.trainable),
            training=spec.training,
            metric=spec.metric.name,
            total=spec.last_step,
            every=spec.checkpoints.every,
            seed=spec.seed,
            folder=setting.folder,
        )
        self._happened: queue.Queue[_Report | Outcome] = queue.Queue()
        self._order: _Running | None = None
        self._slots = 1

    def now(self) -> float:
        return time.time()

    def capacity(self) -> int:
        return 0 if self._order is not None else self._slots

    def slots(self) -> int:
        return 1

    def start(self, order: Order, environment: dict[str, str]) -> None:
        task = Assignment(
            order.id,
            order.trial,
            order.params,
            order.start,
            order.first,
            order.until,
            order.milestones,
            environment,
        )
        self._order = _Running(order, self._place, task, self._happened)
        self._order.thread.start()

    def decide(self, order: int, verdict: Verdict) -> None:
        running = self._order
        if running is not None and running.order.id == order:
            running.answer(verdict == "continue")

    def kill(self, order: int) -> None:
        self.decide(order, "kill")  # a thread can't be killed: it stops where it next reports

    def limit(self, slots: int) -> None:
        self._slots = slots

    def events(self, timeout_s: float) -> Sequence[BackendEvent]:
        running = self._order
        if running is None:
            time.sleep(timeout_s)
            return []
        running.go_on()
        try:
            happened = self._happened.get(timeout=timeout_s)
        except queue.Empty:
            return []
        now, order = self.now(), running.order
        if isinstance(happened, Outcome):
            self._order = None
            if happened.kind == "ended":
                return [Ended(now, order.id, order.trial)]
            cause = "infra" if happened.kind == "infra" else "user"
            return [Failed(now, order.id, order.trial, cause, happened.message)]
        report = Reported(now, order.id, order.trial, happened.step, happened.metrics)
        if happened.saved is None:
            return [report]
        return [Checkpointed(now, order.id, order.trial, happened.saved), report]

    def close(self) -> None:
        self._slots = 0
        if self._order is not None:
            self._order.answer(False)
            self._order.thread.join(JOIN_S)
            self._order = None


@dataclass(frozen=True)
class _Report:
    step: int
    metrics: Mapping[str, float]
    saved: Saved | None


class _Running:
    """An order on its thread, which waits at each report until it hears `go on` or `stop`."""

    def __init__(
        self,
        order: Order,
        place: Place,
        task: Assignment,
        happened: "queue.Queue[_Report | Outcome]",
    ) -> None:
        self.order = order
        self._happened = happened
        self._answer: queue.Queue[bool] = queue.Queue()
        self._waits: Literal["", "driver", "decision"] = ""
        self._step = 0
        self._stopped = False
        self.thread = threading.Thread(
            target=lambda: happened.put(carry_out(place, task, 0, self)), daemon=True
        )

    def exchange(self, step: int, metrics: Mapping[str, float], checkpoint: Saved | None) -> bool:
        milestone = any(self._step < at <= step for at in self.order.milestones)
        self._step = step
        self._waits = "decision" if milestone else "driver"
        self._happened.put(_Report(step, metrics, checkpoint))
        return self._answer.get() and not self._stopped

    def go_on(self) -> None:
        """The driver has taken what happened; only a decision keeps the trainable waiting."""
        if self._waits == "driver" and self._happened.empty():
            self.answer(not self._stopped)

    def answer(self, go_on: bool) -> None:
        self._stopped = self._stopped or not go_on
        if self._waits:
            self._waits = ""
            self._answer.put(go_on)
