"""Sweeps of a process that is connected to Ray already, as a notebook is."""

import pytest
import ray
from engines import await_none
from simulated_sweeps import spec_of

from hposvc import api
from hposvc.errors import OutOfReach

pytestmark = [pytest.mark.ray, pytest.mark.long]


@pytest.fixture(scope="module")
def own_ray():
    context = ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield context.address_info["gcs_address"]
    ray.shutdown()


def make_spec(**sections):
    return spec_of("toys:steady", **{"fidelity": {"max": 2}, "trials": {"max": 2}, **sections})


class Said:
    """A listener that records what a driver says."""

    def __init__(self):
        self.texts = []

    def on_events(self, state, events):
        pass

    def say(self, text):
        self.texts.append(text)


@pytest.mark.parametrize(
    ("how", "engine"),
    [(None, "ray"), ("given", "ray"), ("loopback", "ray"), (None, "tune")],
)
def test_the_connection_is_used_and_left_as_it_was(own_ray, tmp_path, how, engine):
    """Otherwise a second Ray is started beside the notebook's, or the sweep is refused."""
    sweeps, listener = api.Sweeps.open(tmp_path / "home"), Said()
    port = own_ray.rpartition(":")[2]
    address = {"given": own_ray, "loopback": f"127.0.0.1:{port}"}.get(how, how)
    kept = ray.put(3)
    record = api.drive(sweeps, api.create(sweeps, make_spec(engine=engine)), [listener], address)
    assert record.state.state == "COMPLETED"
    assert listener.texts[0] == "using this process's connection to Ray"
    assert not (tmp_path / "home" / "ray").exists(), "no other Ray was started"
    assert ray.get(kept) == 3
    assert ray.util.list_named_actors(all_namespaces=True) == []
    await_none(lambda: ray.cluster_resources()["CPU"] - ray.available_resources().get("CPU", 0))


def test_another_address_than_that_of_the_connection_is_refused(own_ray, tmp_path):
    sweeps = api.Sweeps.open(tmp_path / "home")
    row = api.create(sweeps, make_spec())
    message = r"connected to Ray at \S+, and the sweep is to run at 127\.0\.0\.1:1; leave the addr"
    with pytest.raises(OutOfReach, match=message):
        api.drive(sweeps, row, address="127.0.0.1:1")
    assert ray.is_initialized()
