"""What is said to users about the processes in which their trials will run."""

from pathlib import Path

from simulated_sweeps import make_spec

from hposvc.backends.backend import Setting
from hposvc.backends.ray import cluster


def setting(tmp_path: Path, address: str | None) -> Setting:
    return Setting("mine", make_spec(), tmp_path / "sweeps" / "mine", tmp_path, address)


def test_that_a_clusters_trials_get_no_variable_of_the_shell_is_said(tmp_path):
    [note] = cluster.notes(setting(tmp_path, "10.0.0.1:6379"))
    assert "none of this shell" in note
    assert "environment.env or environment.secrets" in note


def test_that_another_ray_takes_all_cpus_too_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "find_others", lambda folder: [])
    assert cluster.notes(setting(tmp_path, None)) == []
    asked = []

    def others(folder: Path) -> list[str]:
        asked.append(folder)
        return ["10.0.0.7:6379", "127.0.0.1:41234"]

    monkeypatch.setattr(cluster, "find_others", others)
    [note] = cluster.notes(setting(tmp_path, None))
    assert asked == [tmp_path / "ray"]
    assert "another Ray runs on this machine, at 10.0.0.7:6379 and" in note
    assert "--address" in note
