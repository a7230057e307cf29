"""A simulation that loses orders and checkpoints, and an account of every checkpoint."""

from random import Random

from hposvc.backends.simulate import Simulation
from hposvc.events import Checkpointed, Failed, Ordered
from hposvc.state.sweep import SweepState

POPULATION = {"type": "pbt", "interval": 2, "mutate": {"lr": {}}, "quantile": 0.4}
CURVE = {"type": "simulate", "curve": "simulated_sweeps:troubled"}


class Rotten(Simulation):
    """A simulation whose orders sometimes fail, by a lost rank or by a damaged checkpoint."""

    def __post_init__(self):
        super().__post_init__()
        self._rng = Random(self.setting.spec.seed)

    def events(self, timeout_s):
        if self._runs and self._rng.random() < 0.1:
            run = self._runs.pop(self._rng.choice(list(self._runs)))
            order, damaged = run.order, self._rng.random() < 0.4
            untouched = run.step < order.first and order.start is not None
            return [
                Failed(self.now(), order.id, order.trial, "infra", "lost", damaged and untouched)
            ]
        return super().events(timeout_s)


class Librarian:
    """A reader of a journal that keeps account of every checkpoint."""

    def __init__(self, spec):
        self.state = SweepState(spec)
        self.written, self.damaged = set(), set()
        self.copies = 0

    def read(self, event):
        if isinstance(event, Ordered) and event.order.start is not None:
            self._lends(event.order)
        if isinstance(event, Failed) and event.damaged:
            self.damaged.add(self.state.trials[event.trial].order.start.path)
        self.state.apply(event)
        if isinstance(event, Checkpointed):
            self.written.add(event.saved.path)
        gone = {saved.path for saved in self.state.checkpoints.dropped}
        for trial in self.state.trials.values():
            needed = trial.borrowed_checkpoint if trial.order is None else trial.order.start
            assert needed is None or needed.path not in gone
            assert not gone & {saved.path for saved in trial.checkpoints}

    def _lends(self, order):
        self.copies += order.parent is not None
        owner = self.state.trials[order.parent or order.trial]
        assert order.start in owner.usable()
        assert order.start.path not in {saved.path for saved in self.state.checkpoints.dropped}

    def close(self):
        checkpoints, keep = self.state.checkpoints, self.state.spec.checkpoints
        assert checkpoints.lent == {}
        kept = [saved.path for trial in self.state.trials.values() for saved in trial.checkpoints]
        gone = [saved.path for saved in checkpoints.dropped]
        assert len({*kept, *gone}) == len(kept) + len(gone), "each is kept once or dropped once"
        assert {*kept, *gone} | self.damaged == self.written
        for trial in self.state.trials.values():
            assert len(trial.usable()) <= keep.keep_last + keep.keep_best
