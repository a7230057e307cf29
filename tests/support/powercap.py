"""A powercap tree as Linux has it, in a folder, and a trainable that uses energy by its counter."""

import os
import time
from pathlib import Path

RANGE_UJ = 262_143_328_850  # of an Intel Xeon


def make_tree(folder, packages=1, energy_uj=0, range_uj=RANGE_UJ):
    """Write the packages of a machine, with the domains that must not be counted; return it."""
    zones = {
        **{f"intel-rapl:{number}": f"package-{number}" for number in range(packages)},
        "intel-rapl:0:0": "core",
        "intel-rapl:0:1": "dram",
        f"intel-rapl:{packages}": "psys",
    }
    for zone, name in zones.items():
        place = folder / zone
        place.mkdir(parents=True)
        (place / "name").write_text(f"{name}\n")
        (place / "max_energy_range_uj").write_text(f"{range_uj}\n")
        (place / "energy_uj").write_text(f"{energy_uj}\n")
    return folder


def use(folder, joules, zone="intel-rapl:0"):
    """Add joules to a counter, which begins anew beyond its range."""
    place = Path(folder) / zone
    file, most = place / "energy_uj", int((place / "max_energy_range_uj").read_text())
    fresh = place / "fresh"
    fresh.write_text(f"{(int(file.read_text()) + round(1e6 * joules)) % (most + 1)}\n")
    fresh.replace(file)  # who reads it meanwhile must not find it empty


def used_kwh(folder, zone="intel-rapl:0"):
    """Return what a package has used since `make_tree`, if its counter did not begin anew."""
    return int((Path(folder) / zone / "energy_uj").read_text()) / 3.6e12


def burning(params, worker):
    """Use so many joules in each step; the first attempt of a trial may fail after its second."""
    file = Path(f"{worker.checkpoints}-{worker.trial}-failed")
    for step in worker.steps():
        burn(params["joules"] if worker.rank == 0 else 0)
        worker.report(step, {"loss": 1 / params["joules"] + 1 / step})
        if params.get("fails") and step == 2 and not file.exists():
            file.touch()
            raise ConnectionError("the network")


def burn(joules):
    """Use joules, and some time of a processor, by which this process gets its part of them."""
    began = time.process_time()
    while time.process_time() < began + 0.05:
        pass
    if joules:
        use(os.environ["HPOSVC_POWERCAP"], joules)
