"""What is made of nodes that were found unfit; on a real cluster it is test_unfit_nodes."""

from types import SimpleNamespace

import pytest

from cluster import quarantine
from cluster.fitness import Fitness, Trouble
from hposvc.backends import departing
from hposvc.backends.backend import OutOfReach
from hposvc.backends.departing import Departures

SOUND = ()
BROKEN = (Trouble("it is broken", "mend it", True), Trouble("and dusty", "clean it", False))


class Looked:
    """Nodes that have been looked at."""

    def __init__(self, **troubles):
        self.found = {name: Fitness(name, "10.0.0.1", "", has) for name, has in troubles.items()}
        self.busy = False

    def look(self, nodes):
        pass

    def judged(self):
        found, self.found = self.found, {}
        return found


class Joined:
    """A cluster whose nodes may be left, but for the last `least` of them."""

    def __init__(self, nodes, least=1):
        self.left, self.room = [], nodes - least

    def choice(self):
        return []

    def exclude(self, node):
        if len(self.left) == self.room:
            raise OutOfReach("no room")
        self.left.append(node)


@pytest.fixture
def depart(tmp_path, monkeypatch):
    """Departures, the cluster, and the nodes that are to be left."""
    monkeypatch.setattr(departing, "_name", lambda node: node)

    def of(least=1, others=0, before=None, **troubles):
        there = [*troubles, *range(others)]
        known = {**dict.fromkeys(there, SOUND), **(before or {})}
        monkeypatch.setattr(departing, "kept", lambda: known)
        monkeypatch.setattr(departing, "faults", lambda found: found)
        joined = Joined(len(there), least)
        setting = SimpleNamespace(sweep="s", home=tmp_path)
        departures = Departures(setting, joined, _inspection=Looked(**troubles))
        return departures, joined, [each.node for each in departures.due()]

    return of


def test_an_unfit_node_is_left_and_held_with_the_reason(depart, tmp_path, caplog):
    departures, joined, left = depart(a=SOUND, b=BROKEN)
    assert (joined.left, left) == (["b"], ["b"])
    assert quarantine.held(tmp_path) == {"b": "s: node b is unfit: it is broken"}
    assert "nothing new starts there until: hposvc cluster lift b" in caplog.text
    assert departures.due() == []


def test_one_that_comes_later_is_held_too(depart, tmp_path):
    depart(others=3, late=BROKEN)
    assert list(quarantine.held(tmp_path)) == ["late"]


def test_where_most_nodes_are_unfit_it_is_not_they(depart, tmp_path, caplog):
    """A driver whose own clock is off would hold all but one."""
    _, joined, left = depart(a=BROKEN, b=BROKEN, c=SOUND)
    assert (joined.left, left) == ([], [])
    assert quarantine.held(tmp_path) == {}
    assert "most of 3 nodes, so none is held: node a is unfit: it is broken; node b" in caplog.text


def test_a_node_without_which_there_is_no_room_is_only_told(depart, tmp_path, caplog):
    _, _, left = depart(least=2, a=SOUND, b=BROKEN)
    assert left == []
    assert quarantine.held(tmp_path) == {}
    assert "it goes on there: the other nodes have no room for a slot" in caplog.text


def test_nodes_that_are_found_unfit_one_by_one_are_most_of_all_at_last(depart):
    """It is the driver's clock, say; else each node that comes late would be held for good."""
    before = {"first": BROKEN, "second": BROKEN}
    departures, _, left = depart(before=before, late=BROKEN)
    assert left == []
    assert quarantine.held(departures.setting.home) == {}


def test_a_death_on_a_node_that_is_gone_is_not_counted(depart, monkeypatch):
    """Ray knows no place of it any more, or already another one; and nothing can start there."""
    departures, joined, _ = depart(others=3)
    monkeypatch.setattr(departing.ray, "nodes", lambda: [{"NodeID": "here", "Alive": True}])
    departures._losses.lose = lambda node, trials: True
    for place, left in (("", []), ("gone", []), ("here", ["here"])):
        slot = SimpleNamespace(name=place, leaving="", orders={}, nodes=lambda place=place: [place])
        departures.lose(slot, 0)
        assert joined.left == left
