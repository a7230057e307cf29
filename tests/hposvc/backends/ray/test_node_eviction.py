"""The eviction of unfit nodes, without a cluster; with a real cluster: test_unfit_nodes."""

from types import SimpleNamespace

import pytest

from cluster import quarantine
from cluster.node_health import Issue, NodeHealth
from hposvc.backends.ray import node_eviction
from hposvc.backends.ray.node_eviction import NodeEvictions
from hposvc.errors import OutOfReach

SOUND = ()
BROKEN = (Issue("it is broken", "mend it", True), Issue("and dusty", "clean it", False))


class Looked:
    """An inspection that is done, with the issues given by node."""

    def __init__(self, **troubles):
        self.found = {name: NodeHealth(name, "", issues) for name, issues in troubles.items()}
        self.busy = False

    def look(self, nodes):
        pass

    def judged(self):
        judged, self.found = self.found, {}
        return judged


class Joined:
    """A cluster whose nodes can be excluded until `least` of them remain."""

    def __init__(self, nodes, least=1):
        self.left, self.room = [], nodes - least

    def candidate_nodes(self):
        return []

    def exclude(self, node):
        if len(self.left) == self.room:
            raise OutOfReach("no room")
        self.left.append(node)


@pytest.fixture
def depart(tmp_path, monkeypatch):
    """Return a function that makes evictions, with the cluster and the nodes to leave."""
    monkeypatch.setattr(node_eviction, "_node_name", lambda node: node)

    def of(least=1, others=0, before=None, **troubles):
        nodes = [*troubles, *range(others)]
        inspected = {**dict.fromkeys(nodes, SOUND), **(before or {})}
        monkeypatch.setattr(node_eviction, "stored_results", lambda: inspected)
        monkeypatch.setattr(node_eviction, "own_issues", lambda found: found)
        cluster = Joined(len(nodes), least)
        setting = SimpleNamespace(sweep="s", home=tmp_path)
        evictions = NodeEvictions(setting, cluster, _inspection=Looked(**troubles))
        return evictions, cluster, [eviction.node for eviction in evictions.find_new()]

    return of


def test_an_unfit_node_is_left_and_held_with_the_reason(depart, tmp_path, caplog):
    evictions, cluster, to_leave = depart(a=SOUND, b=BROKEN)
    assert (cluster.left, to_leave) == (["b"], ["b"])
    assert quarantine.held(tmp_path) == {"b": "s: node b is unfit: it is broken"}
    assert "nothing new starts there until: hposvc cluster lift b" in caplog.text
    assert evictions.find_new() == []


def test_one_that_comes_later_is_held_too(depart, tmp_path):
    depart(others=3, late=BROKEN)
    assert list(quarantine.held(tmp_path)) == ["late"]


def test_where_most_nodes_are_unfit_it_is_not_they(depart, tmp_path, caplog):
    """Otherwise a driver with a wrong clock would quarantine all nodes but one."""
    _, cluster, to_leave = depart(a=BROKEN, b=BROKEN, c=SOUND)
    assert (cluster.left, to_leave) == ([], [])
    assert quarantine.held(tmp_path) == {}
    assert "most of 3 nodes, so none is held: node a is unfit: it is broken; node b" in caplog.text


def test_a_node_without_which_there_is_no_room_is_only_told(depart, tmp_path, caplog):
    _, _, to_leave = depart(least=2, a=SOUND, b=BROKEN)
    assert to_leave == []
    assert quarantine.held(tmp_path) == {}
    assert "it goes on there: the other nodes have no room for a slot" in caplog.text


def test_nodes_that_are_found_unfit_one_by_one_are_most_of_all_at_last(depart):
    """Otherwise a wrong clock of the driver would quarantine each late node for good."""
    before = {"first": BROKEN, "second": BROKEN}
    evictions, _, to_leave = depart(before=before, late=BROKEN)
    assert to_leave == []
    assert quarantine.held(evictions.setting.home) == {}


def test_a_death_on_a_node_that_is_gone_is_not_counted(depart, monkeypatch):
    """Ray has forgotten the node, or knows another at its address; nothing can start there."""
    evictions, cluster, _ = depart(others=3)
    monkeypatch.setattr(node_eviction.ray, "nodes", lambda: [{"NodeID": "here", "Alive": True}])
    evictions._failures.record_death = lambda node, trials: True
    for place, to_leave in (("", []), ("gone", []), ("here", ["here"])):
        slot = SimpleNamespace(name=place, leaving="", orders={}, nodes=lambda place=place: [place])
        evictions.on_slot_lost(slot, 0)
        assert cluster.left == to_leave
