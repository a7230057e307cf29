"""A slot whose process trains several orders at once, for tests."""

from two_ranks import Slot

from trainables.link import CheckpointSaved, DataDeclared, Report
from trainables.order import Order
from trainables.runtime.assignment import Assignment, Outcome
from trainables.runtime.wire import OrderPlaced, PreemptionStarted


class BusySlot(Slot):
    """A slot that is given orders while others are running."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.kept, self.leaving = {}, []  # the last checkpoint that came without a report

    def start(self, params, start=None, until=3, milestones=()):
        self.number += 1
        first = 1 if start is None else start.step + 1
        trial = f"t{self.number:04}"
        task = Assignment(Order(self.number, trial, params, start, first, until, milestones))
        self.leader.carry_out(task)
        return self.number

    def finish(self, *orders, stops=(), later=()):
        """Return the reports and the end of each of these orders.

        Args:
            later: parameters of further orders, each of which starts when another one ends.
        """
        reports, ends, later = {order: [] for order in orders}, {}, list(later)
        while ends.keys() != reports.keys():
            message = self.next_message()
            if isinstance(message, Outcome):
                ends[message.order] = message
                if later:
                    reports[self.start(later.pop(0))] = []
            elif isinstance(message, Report):
                reports[message.order].append(message)
                if (message.order, message.step) in stops:
                    self.leader.decide(message.order, "stop")
            elif isinstance(message, CheckpointSaved):
                self.kept[message.order] = message.saved
            elif isinstance(message, PreemptionStarted):
                self.leaving.append(message.why)
            else:
                assert isinstance(message, DataDeclared | OrderPlaced)
        return [(reports[order], ends[order]) for order in reports]


def losses(reports):
    return [report.metrics["val/loss"] for report in reports]
