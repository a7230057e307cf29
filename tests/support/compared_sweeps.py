"""A home with simulated sweeps to compare: random and sobol on a space, random on a narrow one."""

from pathlib import Path

from simulated_sweeps import make_several, make_spec

from hposvc import api

SEEDS = (0, 1, 2)
WIDE = [f"{name}-{seed}" for seed in SEEDS for name in ("random", "sobol")]
NARROW = [f"narrow-{seed}" for seed in SEEDS]


SIMULATED = {"tracking": {"send_to": []}, "search": "random", "seed": 9}
SPECS = {
    **{f"random-{seed}": {"seed": seed} for seed in SEEDS},
    **{f"sobol-{seed}": {"seed": seed, "search": "sobol"} for seed in SEEDS},
    **{
        f"narrow-{seed}": {"seed": seed, "parameters": {"lr": {"min": 9e-4, "max": 1.1e-3}}}
        for seed in SEEDS
    },
    "long": {"fidelity": {"max": 18}, "scheduler": "asha"},
    "gpus": {"resources": {"gpus_per_worker": 1}},
    "repeated-1": {"seed": 1, "finalists": {"top": 1, "seeds": 3}},
    "repeated-2": {"seed": 2, "finalists": {"top": 1, "seeds": 3}},
    **{
        f"rough-{seed}": {
            "seed": seed,
            "engine": {"type": "simulate", "curve": "simulated_sweeps:rough"},
        }
        for seed in (1, 2)
    },
    "upward": {"metric": {"name": "loss", "goal": "maximize"}},
    "front": {},
    "none": {},  # it did not begin
}


def record(folder: Path, *names: str) -> api.Sweeps:
    """Run these sweeps in a home, which is in this folder; by default all."""
    sweeps = api.Sweeps.open(folder)
    for name in names or SPECS:
        make = make_several if name == "front" else make_spec
        row = api.create(sweeps, make(**{**SIMULATED, **SPECS[name]}), name)
        if name != "none":
            api.drive(sweeps, row)
    return sweeps
