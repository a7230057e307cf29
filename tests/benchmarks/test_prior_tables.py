"""The tuning tables that a prior is learned from: they read back, and are of real trainings."""

import numpy as np
import pytest
from prior.cells import CELLS, MODELS
from prior.data_sets import BUNDLED
from prior.spaces import draw, own_names, sample
from prior.tables import load_table, load_tables, save_table

from searchers import Choice, Space

LOADED = load_tables()
# Trainings of milliseconds, on data that is always there.
QUICK = [t for t in LOADED if t.model == "neighbours" and t.data in BUNDLED]


@pytest.mark.parametrize("table", LOADED, ids=lambda table: table.name)
def test_a_table_has_valid_configurations_no_two_equal_and_finite_losses(table):
    assert len(table.configs) == len(table.losses) >= min(100, table.space.size or 100)
    for params in table.configs:
        table.space.validate(params)
    assert len({table.space.key(params) for params in table.configs}) == len(table.configs)
    assert np.isfinite(table.losses).all()
    assert (table.losses >= 0).all()
    assert (table.losses <= 10).all()
    assert len(set(table.losses)) > len(table.losses) / 10, "the parameters have no effect"


@pytest.mark.parametrize("table", QUICK, ids=lambda table: table.name)
def test_a_training_gives_the_loss_of_its_table_again(table):
    parameters, loss = MODELS[table.model]
    for params, known in list(zip(table.configs, table.losses, strict=True))[:5]:
        assert loss(own_names(parameters, params), table.data) == pytest.approx(known, rel=1e-4)


def test_models_take_what_is_drawn_from_their_spaces():
    """Four of them are trained, on data of scikit-learn; 30 spaces of each are well-formed."""
    rng = np.random.default_rng(3)
    for parameters, _ in MODELS.values():
        for _ in range(30):
            space = draw(parameters, rng)
            assert Space.from_dict(space.to_dict()).to_dict() == space.to_dict()
            own = own_names(parameters, sample(space, rng))
            assert own.keys() == {parameter.names[0] for parameter in parameters}
    cells = {cell.model: cell for cell in CELLS if cell.data in BUNDLED}
    for model in ("forest", "svr", "elastic", "neighbours"):
        parameters, loss = MODELS[model]
        params = own_names(parameters, sample(draw(parameters, rng), rng))
        assert 0 < loss(params, cells[model].data) < 10


def test_values_and_conditions_keep_their_sense_under_other_names():
    parameters, _ = MODELS["svc"]
    rng = np.random.default_rng(0)
    for _ in range(40):
        space = draw(parameters, rng)
        params = sample(space, rng)
        own = own_names(parameters, params)
        kernel = next((space[name] for name in ("kernel", "kernel_type") if name in space), None)
        assert own["kernel"] in ("rbf", "linear", "poly", "sigmoid")
        assert isinstance(kernel, Choice | None)
        if own["kernel"] == "linear":
            assert own["gamma"] == "scale", "gamma is no parameter of a linear kernel"


def test_a_saved_table_reads_back_and_an_equal_one_has_equal_bytes(tmp_path):
    table = LOADED[0]
    save_table(table, tmp_path)
    path = tmp_path / f"{table.name}.json.gz"
    first, again = path.read_bytes(), load_table(path)
    assert again.configs == table.configs
    assert again.space.to_dict() == table.space.to_dict()
    save_table(again, tmp_path)
    assert path.read_bytes() == first
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
