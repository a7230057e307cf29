"""Every example runs, in a small form, to its end: here those whose networks we train.

The others are in test_examples_of_programs.py and test_examples_in_python.py.
"""

from math import isfinite
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.long]

ROOT = Path(__file__).parents[2]
# One slot each: more of them would only import torch more often at the same time.
ALONE = {"trials.parallel": 1, "resources.cpus_per_worker": 0.5}
SMALL = {
    "tables.yaml": {"trials.max": 2, "fidelity.max": 2, **ALONE},
    "lora.yaml": {
        "trials.max": 2,
        "fidelity.max": 2,
        "parameters.samples": 64,
        "parameters.length": 8,
        **ALONE,
    },
    "gpt_text.yaml": {
        "trials.max": 2,
        "fidelity.min": 1,
        "fidelity.max": 2,
        "parameters.share": 0.01,
        **ALONE,
    },
    "fashion_ddp.yaml": {
        "trials.max": 2,
        "fidelity.max": 2,
        "parameters.data": "digits",  # the others come with Debian, not with Python
        **ALONE,
    },
}
# Folders, with a spec and its program.
FEW = {"trials.max": 2, "fidelity.min": 1, "fidelity.max": 1, "engine": "local"}
GALLERY: dict[str, dict[str, object]] = {
    "boosting": FEW,
    "diffusion": FEW,
    "forecast": {**FEW, "limits": "[]"},  # no trial keeps them so soon
    "graph": FEW,
    "grpo": FEW,
    "mixture": FEW,
    "ppo": {**FEW, "trials.seeds": 2},
    "sft_lora": {**FEW, "engine": "ray", "parameters.reading": 1, **ALONE, "trials.parallel": 2},
}


def test_no_example_is_without_a_test():
    assert {file.name for file in (ROOT / "examples").iterdir() if file.is_file()} == {
        *SMALL,
        "digits.yaml",  # run by test_readme.py, and killed in tests/chaos
        "digits_pbt.yaml",  # run by test_readme.py
        "training.yaml",  # run by test_readme.py
        "llm_lora.yaml",  # for GPUs
        "train_glosses.py",  # of lora.yaml
        "train_llm.py",  # of llm_lora.yaml
        "transformers_models.py",  # of both
        "serve_toy.yaml",  # run by test_examples_of_programs.py
        "script.yaml",  # run by test_readme.py
        "train_script.py",  # of script.yaml
        *(f"script_{library}.yaml" for library in ("click", "absl", "tyro", "hydra")),
        *(f"train_{library}.py" for library in ("click", "absl", "tyro", "hydra")),
        "tabular_sklearn.yaml",  # run by test_readme.py
        "train_trees.py",  # of tabular_sklearn.yaml
        "torchrun.yaml",
        "train_torchrun.py",
        "script_accelerate.yaml",
        "train_accelerate.py",
        "torchrun_shards.yaml",
        "train_shards.py",
        "pareto.yaml",  # run by test_readme.py
        "train_front.py",  # of pareto.yaml
        "openevolve_evaluator.py",  # tests/examples/test_openevolve_evaluator.py
        # test_examples_in_python.py
        "agent_loop.py",
        "quickstart.py",
        "function.py",
        "optuna_space.py",
        "tune_search.py",
        "ray_tune.py",
        "optuna_distributions.py",
    }
    assert {file.parent.name for file in (ROOT / "examples").glob("*/*.yaml")} == {*GALLERY}


# One of them stands for all: the others take as long, and differ in what they train.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.full) if name != "fashion_ddp.yaml" else name
        for name in SMALL
    ],
)
def test_a_network_is_tuned(complete, name):
    checkpoint = complete(name, SMALL[name])["best"]["checkpoint"]
    assert Path(checkpoint).is_dir()


@pytest.mark.parametrize("name", GALLERY)
def test_an_example_of_a_task_is_run(complete, name):
    value = complete(f"{name}/sweep.yaml", GALLERY[name])["best"]["value"]
    assert isfinite(value)


def test_a_spec_for_large_machines_is_valid_without_them(python):
    ended = python("-m", "hposvc", "validate", "examples/llm_lora.yaml")
    assert "train_llm.py:CausalLM" in ended.stdout
