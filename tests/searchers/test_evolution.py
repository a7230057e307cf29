import numpy as np
from cmaes import CMA

from searchers import Choice, Float, Int, Space, create
from searchers.evolution import evolve
from searchers.fidelity import comparable
from searchers.searcher import Observation

VALLEY = Space({f"x{i}": Float(-2.0, 3.0) for i in range(5)})


def rosenbrock(params):
    x = np.array(list(params.values()))
    return float(np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2))


def told(searcher, loss, trials):
    for _ in range(trials):
        trial = searcher.ask()
        searcher.tell(trial, loss(trial.params))
    return searcher


def test_the_distribution_is_the_one_that_the_package_gives_step_by_step():
    """Telling the history again must not differ from having kept the optimizer."""
    searcher = told(create("cmaes", VALLEY), rosenbrock, 83)
    optimizer = CMA(np.full(5, 0.5), 1 / 6, np.tile([0.0, 1.0], (5, 1)))
    size = optimizer.population_size
    for begin in range(0, 83 - size + 1, size):
        part = searcher.history[begin : begin + size]
        optimizer.tell([(VALLEY.encode(seen.params), seen.loss) for seen in part])
    rebuilt = evolve(VALLEY, comparable(searcher.history, 6))
    assert rebuilt.generation == optimizer.generation == 83 // size
    np.testing.assert_allclose(rebuilt.mean, optimizer.mean, rtol=1e-12)


def test_results_that_were_added_count_as_a_generation():
    searcher = create("cmaes", VALLEY)
    rng = np.random.default_rng(0)
    for _ in range(8):
        params = {name: float(rng.uniform(2.0, 3.0)) for name in VALLEY}
        searcher.add(params, sum(params.values()))
    assert searcher.ask().note["generation"] == 1
    drawn = np.array([list(trial.params.values()) for trial in searcher.ask(20)])
    assert drawn.mean() > 1.0  # 0.5 before


def test_what_is_inactive_or_unordered_does_not_move_the_distribution():
    """An inactive parameter with a value would be pulled there by trials that do not have it."""
    space = Space(
        {
            "kind": Choice(("a", "b")),
            "only_a": Float(0.0, 1.0, when={"kind": ("a",)}),
            "level": Choice((1, 2, 4, 8), ordered=True),
            "width": Int(1, 100),
        }
    )
    history = [
        Observation(str(i), {"kind": "b", "level": 8, "width": 90 + i}, {}, float(-i), state="done")
        for i in range(7)
    ]
    numbers = [name for name in space.searched if name != "kind"]
    mean = evolve(space, comparable(history, 1)).mean
    moved = dict(zip(numbers, mean, strict=True))
    assert moved["only_a"] == 0.5
    assert min(moved["level"], moved["width"]) > 0.6


def test_failures_and_exceeded_limits_push_the_distribution_away():
    line = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
    for hurt in ({"state": "failed", "reason": "oom"}, {"loss": -1.0, "excess": (0.5,)}):
        history = [
            Observation(str(i), {"x": x, "y": 0.5}, **{"state": "done", "loss": 1.0, **outcome})
            for i, x in enumerate([0.3, 0.7] * 6)
            for outcome in [hurt if x > 0.5 else {}]
        ]
        assert evolve(line, comparable(history, 1)).mean[0] < 0.4


def test_a_distribution_that_has_collapsed_starts_again_with_twice_the_population():
    """Otherwise all further trials would be spent on one point."""
    line = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
    history = [
        Observation(str(i), {"x": 0.3, "y": 0.3}, loss=1.0, state="done") for i in range(600)
    ]
    assert evolve(line, comparable(history, 1)).population_size > evolve(line, []).population_size
