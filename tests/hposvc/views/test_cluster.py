"""Views of a cluster. If these fail, people copy a line that reaches another cluster."""

from dataclasses import asdict

from printed import text_of
from rich.console import Group

from hposvc.operations.doctor import Check
from hposvc.views.cluster import checks, describe_overview, exports

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


def test_each_check_has_a_row_and_its_remedy_stands_below_it():
    rows = [Check("ray", "ok", "2.60"), Check("disk", "fail", "0 GB left", "free [some]")]
    text = text_of(checks(rows))
    assert text.index("2.60") < text.index("0 GB left") < text.index("→ free [some]")
    assert text.count("→") == 1
