"""Views of a cluster. If these fail, people copy a line that reaches another cluster."""

from dataclasses import asdict

from printed import text_of
from rich.console import Group

from hposvc.operations.doctor import Check
from hposvc.views.cluster import describe_overview, exports

NODE = {
    "name": "n1",
    "state": "ALIVE",
    "host": "10.0.0.7",
    "resources": {"CPU": 8.0, "memory": 2.0 * 2**30},
    "used": {"CPU": 3.0},
}


class Started:
    def environment(self):
        return {"RAY_ADDRESS": "10.0.0.7:6379", "RAY_AUTH_TOKEN_PATH": "/my home/token"}


def test_lines_to_copy_are_quoted_and_free_of_another_cluster_s_token(monkeypatch):
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    lines = exports(Started())
    assert "export RAY_AUTH_TOKEN_PATH='/my home/token'" in lines
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    assert exports(Started()) == ["unset RAY_AUTH_TOKEN", *lines]


def test_held_nodes_and_checks_are_shown_where_there_are_any():
    overview = {"dashboard": "http://10.0.0.7:8265", "nodes": [NODE], "jobs": []}
    assert len(list(describe_overview({**overview, "held": {}}))) == 3
    check = asdict(Check("n1", "ok", "fit"))
    held = {"n1": "its clock is off"}
    text = text_of(Group(*describe_overview({**overview, "held": held, "health": [check]})))
    assert "clock" in text
    assert "fit" in text
