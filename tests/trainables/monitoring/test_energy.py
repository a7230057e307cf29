"""If these fail, trials are charged with energy that others used, or with what nobody measured."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from powercap import make_tree, use

from trainables.monitoring import energy
from trainables.monitoring.energy import Counter, Meter, Unmeasured, gpu_counters, packages_in

BURN = "import time\nwhile time.process_time() < 0.3: pass"


class NVMLError(Exception):
    """NVML's error."""


def install(monkeypatch, millijoules, models=("NVIDIA H200",)):
    """Put an NVML in place with these counters, by GPU; None: the model has none."""

    def read(gpu):
        if millijoules[gpu] is None:
            raise NVMLError("Not Supported")
        return millijoules[gpu]

    nvml = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: len(millijoules),
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetName=lambda gpu: models[gpu % len(models)],
        nvmlDeviceGetTotalEnergyConsumption=read,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(len(millijoules)))))


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 99), st.sampled_from(["begin", "end", "look"]), st.integers(0, 3)),
        max_size=40,
    ),
    start=st.integers(0, 100),
)
def test_orders_get_together_what_was_used_while_any_was_at_work_also_when_a_counter_begins_anew(
    steps, start
):
    used, total, at_work = start, 0, {}
    told = 0.0
    meter = Meter([Counter(lambda: used % 100, 100)], [])
    for joules, what, order in steps:
        used += joules
        total += joules if at_work else 0
        if what == "begin" and order not in at_work:
            at_work[order] = meter.during(order)
            at_work[order].__enter__()
        elif what == "end" and order in at_work:
            told += meter.kwh(order, exact=True)
            at_work.pop(order).__exit__(None, None, None)
        else:
            meter.look(0.0)
    told += sum(meter.kwh(order, exact=True) for order in at_work)
    assert told * 3.6e6 == pytest.approx(total)


def test_an_order_of_several_in_a_process_counts_before_its_turn():
    joules = [0]
    meter = Meter([Counter(lambda: joules[0])], [])
    meter.begin(1)
    meter.begin(2)
    joules[0] += 7_200_000
    with meter.during(1), meter.during(2):
        joules[0] += 7_200_000
        assert (meter.kwh(1, exact=True), meter.kwh(2)) == (2.0, 2.0)


def test_only_packages_count_and_a_counter_begins_anew_at_its_range(tmp_path):
    tree = make_tree(tmp_path, packages=2, energy_uj=900, range_uj=1_000_000)
    first, second = packages_in(tree)
    assert (first.read(), second.read()) == (0.0009, 0.0009)
    use(tree, 0.5, "intel-rapl:0")
    before = first.read()
    use(tree, 0.6, "intel-rapl:0")
    assert first.read() < before
    assert first.between(before, first.read()) == pytest.approx(0.6, abs=2e-6)
    assert second.between(0.0009, second.read()) == 0.0


def test_why_packages_are_not_measured_is_said(tmp_path):
    with pytest.raises(Unmeasured, match=f"no RAPL in {tmp_path}"):
        packages_in(tmp_path)
    file = make_tree(tmp_path) / "intel-rapl:0" / "energy_uj"
    file.unlink()
    with pytest.raises(Unmeasured, match=f"{file} can't be read: No such file"):
        packages_in(tmp_path)


def test_a_process_gets_the_part_of_a_package_that_it_and_its_children_work(tmp_path):
    tree = make_tree(tmp_path)
    meter = Meter([], packages_in(tree))
    with meter.during(1):
        subprocess.run([sys.executable, "-c", BURN], check=True)
        use(tree, 3600)
        used = meter.kwh(1, exact=True)
    assert 0 < used <= 0.001
    assert meter.kwh(1) is None, "it has ended"


def test_a_gpu_counts_by_its_share_beside_the_processors(monkeypatch, tmp_path):
    millijoules = [5_000, 7_000]
    install(monkeypatch, millijoules)
    monkeypatch.setenv(energy.POWERCAP, f"{tmp_path}")
    meter = energy.meter.__wrapped__(gpu=True, gpu_share=0.5)
    assert meter.unmeasured == f"processors (no RAPL in {tmp_path})"
    with meter.during(1):
        millijoules[0] += 3_600_000
        millijoules[1] += 3_600_000
        assert meter.kwh(1, exact=True) == pytest.approx(0.001)
    make_tree(tmp_path)
    meter = energy.meter.__wrapped__(gpu=True, gpu_share=0.5)
    assert (len(meter.gpus), len(meter.packages), meter.unmeasured) == (2, 1, "")


@pytest.mark.parametrize(
    ("millijoules", "models", "why"),
    [
        ([5, None], ["NVIDIA H200"], "NVML: Not Supported"),
        ([5, 5], ["NVIDIA L4", "NVIDIA H200"], "set CUDA_DEVICE_ORDER=PCI_BUS_ID"),
    ],
)
def test_a_gpu_without_a_counter_leaves_the_trial_unmeasured(
    monkeypatch, tmp_path, millijoules, models, why
):
    """Its processors alone would make it look cheap."""
    install(monkeypatch, millijoules, models)
    monkeypatch.setenv(energy.POWERCAP, f"{make_tree(tmp_path)}")
    meter = energy.meter.__wrapped__(gpu=True, gpu_share=1.0)
    assert why in meter.unmeasured
    with meter.during(1):
        assert not meter.measures
        assert meter.kwh(1) is None


def test_without_nvml_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(Unmeasured, match="nvidia-ml-py is not installed"):
        gpu_counters()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_counters_that_only_root_may_read_are_named(tmp_path):
    file = make_tree(tmp_path) / "intel-rapl:0" / "energy_uj"
    file.chmod(0)
    with pytest.raises(Unmeasured, match=f"{file} can't be read: Permission denied"):
        packages_in(tmp_path)


@pytest.mark.gpu
def test_a_gpu_counts_what_it_uses():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    meter = Meter(gpu_counters(), [])
    with meter.during(1):
        x = torch.ones(4096, 4096, device="cuda")
        while not meter.kwh(1):
            x = x @ x / 4096
