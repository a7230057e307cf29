import numpy as np

from searchers import Choice, Float, Int, Space
from searchers.novelty import SeenConfigs, can_repeat, sample_new


def test_true_and_one_are_two_configurations():
    space = Space({"x": Choice((1, True))})
    taken = SeenConfigs(space, [{"x": 1}])
    assert {"x": 1} in taken
    assert {"x": True} not in taken


def test_the_last_configurations_of_a_large_space_are_found():
    space = Space({"a": Int(1, 100), "b": Int(1, 100)}, ["a + b > 20"])
    everything = list(space.grid(1))
    taken = SeenConfigs(space, everything[:-3])
    rng = np.random.default_rng(0)
    samples = [sample_new(space, taken, rng) for _ in range(4)]
    assert sorted(map(str, samples[:3])) == sorted(map(str, everything[-3:]))
    assert samples[3] is None


def test_a_space_can_repeat_where_no_continuous_parameter_is_always_active():
    kind = Choice(("cnn", "mlp"))
    assert not can_repeat(Space({"kind": kind, "lr": Float(0.0, 1.0)}))
    assert can_repeat(Space({"kind": kind, "lr": Float(0.0, 1.0, when={"kind": ("cnn",)})}))
    assert can_repeat(Space({"kind": kind, "lr": Float(0.0, 1.0, step=0.1)}))


def test_an_infinite_space_whose_common_configurations_are_used_up_goes_on():
    space = Space({"n": Int(1, 20), "x": Float(0.0, 1.0, when={"n": (20,)})})
    taken = SeenConfigs(space, [{"n": n} for n in range(1, 20)])
    sampled = sample_new(space, taken, np.random.default_rng(0))
    assert sampled["n"] == 20
