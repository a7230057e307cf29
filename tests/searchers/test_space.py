import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers import Choice, Int, Space, SpaceError

SOME = settings(max_examples=100, deadline=None)
SEEDS = st.integers(0, 2**32 - 1)


@SOME
@given(data=st.data(), seed=SEEDS)
def test_every_sample_is_valid_and_survives_the_unit_cube_exactly(spaces, data, seed):
    space = data.draw(spaces)
    params = space.sample(np.random.default_rng(seed))
    space.validate(params)
    assert space.allows(params)
    assert params.keys() == space.active(params)
    unit_D = space.encode(params)
    assert unit_D.shape == (len(space.searched),)
    assert ((unit_D >= 0) & (unit_D <= 1)).all()
    assert space.decode(unit_D) == params
    assert [type(value) for value in space.decode(unit_D).values()] == [
        type(value) for value in params.values()
    ]


@SOME
@given(data=st.data(), seed=SEEDS)
def test_perturbation_never_leaves_the_space(spaces, data, seed):
    space = data.draw(spaces)
    rng = np.random.default_rng(seed)
    params = space.sample(rng)
    for _ in range(5):
        params = space.perturb(params, rng)
        space.validate(params)
        assert space.decode(space.encode(params)) == params


@SOME
@given(data=st.data(), seed=SEEDS)
def test_perturbation_touches_only_the_names_it_may(spaces, data, seed):
    space = data.draw(spaces)
    rng = np.random.default_rng(seed)
    before = space.sample(rng)
    after = space.perturb(before, rng, names=[space.searched[0]] if space.searched else [])
    touched = {name for name in space if getattr(space[name], "key", name) in space.searched[:1]}
    for shares in space.shares:
        touched |= {*shares.members} if touched & {*shares.members} else set()
    assert all(
        after[name] == value
        for name, value in before.items()
        if name in after and name not in touched
    )


@SOME
@given(data=st.data(), unit=st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=24, max_size=24))
def test_every_corner_of_the_cube_decodes_to_values_of_the_domains(spaces, data, unit):
    space = data.draw(spaces)
    params = space.decode(np.array(unit[: len(space.searched)]))
    assert params.keys() == space.active(params)
    assert all(space[name].problem(value) is None for name, value in params.items())


@SOME
@given(data=st.data(), seed=SEEDS)
def test_a_space_written_as_a_dict_reads_as_the_same_space(spaces, data, seed):
    space = data.draw(spaces)
    again = Space.from_dict(space.to_dict(), [constraint.text for constraint in space.constraints])
    assert dict(again) == dict(space)
    assert again.sample(np.random.default_rng(seed)) == space.sample(np.random.default_rng(seed))


@SOME
@given(data=st.data(), seed=SEEDS)
def test_completing_keeps_what_is_given(spaces, data, seed):
    space = data.draw(spaces)
    rng = np.random.default_rng(seed)
    params = space.sample(rng)
    given_names = data.draw(st.sets(st.sampled_from(sorted(params))))
    partial = {name: params[name] for name in given_names}
    completed = space.complete(partial, rng)
    space.validate(completed)
    assert partial.items() <= completed.items()


def test_a_given_child_makes_its_parent_take_a_value_that_activates_it(digits):
    for seed in range(20):
        completed = digits.complete({"nesterov": True}, np.random.default_rng(seed))
        assert completed["optimizer"] == "sgd"


def test_a_given_point_that_cannot_be_completed_says_why(digits):
    with pytest.raises(SpaceError, match=r"nesterov: is active only when \{'optimizer': \['sgd'\]"):
        digits.complete({"optimizer": "lars", "nesterov": True}, np.random.default_rng(0))


def test_a_given_number_takes_the_kind_of_its_parameter():
    """A trainable that makes 2.0 layers fails."""
    space = Space.from_dict(
        {
            "layers": {"min": 1, "max": 4},
            "lr": {"min": 0.5, "max": 4.0},
            "batch": {"values": [8, 9]},
        }
    )
    given = {"layers": 2.0, "lr": 2, "batch": 8.0}
    completed = space.complete(given, np.random.default_rng(0))
    assert {name: repr(completed[name]) for name in given} == {
        "layers": "2",
        "lr": "2.0",
        "batch": "8",
    }


def test_samples_are_uniform_in_the_logarithm(digits):
    rng = np.random.default_rng(0)
    logs = np.log10([digits.sample(rng)["lr"] for _ in range(2_000)])
    share_N, _ = np.histogram(logs, bins=4, range=(-5, -1))
    assert (np.abs(share_N / 2_000 - 0.25) < 0.04).all()


def test_inactive_parameters_are_absent_and_constants_present(digits):
    rng = np.random.default_rng(0)
    samples = [digits.sample(rng) for _ in range(100)]
    for params in samples:
        assert ("momentum" in params) == (params["optimizer"] != "adamw")
        assert ("nesterov" in params) == (params["optimizer"] == "sgd")
        assert params["width"] == 64
    assert "width" not in digits.searched


def test_an_inactive_parameter_is_encoded_in_the_middle(digits):
    params = digits.complete({"optimizer": "adamw"}, np.random.default_rng(0))
    unit_D = digits.encode(params)
    assert unit_D[digits.searched.index("momentum")] == 0.5


def test_parents_are_searched_before_their_children_whatever_the_order_of_declaration():
    space = Space.from_dict(
        {
            "b": {"min": 0.0, "max": 1.0, "when": {"a": 1}},
            "a": {"values": [1, 2]},
            "c": {"values": [1, 2], "when": {"b": 0.5}},
        }
    )
    assert space.searched == ("a", "b", "c")


def test_a_constraint_on_an_inactive_parameter_does_not_apply():
    space = Space(
        {"kind": Choice(("a", "b")), "size": Int(5, 9, when={"kind": ("b",)})}, ["size <= 6"]
    )
    space.validate({"kind": "a"})
    with pytest.raises(SpaceError, match=r"constraints\[0\]: 'size <= 6' does not hold"):
        space.validate({"kind": "b", "size": 7})


def test_a_constraint_that_cannot_be_computed_names_itself_and_the_values():
    space = Space({"a": Int(0, 3), "b": Int(0, 3)}, ["a / b <= 2"])
    with pytest.raises(SpaceError, match=r"'a / b <= 2' fails for \{'a': 1, 'b': 0\}.*zero"):
        space.validate({"a": 1, "b": 0})


def test_constraints_that_nothing_meets_are_found_when_the_spec_is_read():
    with pytest.raises(
        SpaceError, match=r"no configuration was found that meets 'a > 10'; the nearest, \{'a': 9\}"
    ):
        Space.from_dict({"a": {"min": 1, "max": 9}}, ["a > 10"])


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (["a <= 3", "aa > 1"], r"constraints[1]: 'aa > 1' mentions 'aa': did you mean 'a'?"),
        (["a <"], r"constraints[0]: 'a <' cannot be read: invalid syntax"),
        ([True], r"constraints[0]: True is no expression"),
        ("a <= 3", r"constraints: is 'a <= 3'; write a list"),
    ],
)
def test_a_wrong_constraint_is_named_by_its_place(constraints, message):
    with pytest.raises(SpaceError) as caught:
        Space.from_dict({"a": {"min": 1, "max": 9}}, constraints)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"lrr": 1e-3}, "lrr: is no parameter: did you mean 'lr'?"),
        ({"lr": 1.0}, "lr: is 1.0, outside 1e-05 to 0.1"),
        ({"lr": True}, "lr: is True; give a number"),
        ({"layers": 1.5}, "layers: is 1.5; give a whole number"),
        ({"batch": 48}, "batch: is 48; choose from 32, 64, 128"),
        ({"width": 65}, "width: is 65, but it is a constant of 64"),
    ],
)
def test_a_wrong_value_is_named_with_what_it_may_be(digits, params, message):
    with pytest.raises(SpaceError) as caught:
        digits.complete(params, np.random.default_rng(0))
    assert str(caught.value) == message
    assert caught.value.path == (next(iter(params)),)


def test_a_missing_value_is_named(digits):
    params = digits.complete({"optimizer": "adamw"}, np.random.default_rng(0))
    del params["lr"]
    with pytest.raises(SpaceError, match="lr: is missing; give it a value"):
        digits.validate(params)


def test_an_unknown_name_to_perturb_is_refused(digits):
    params = digits.sample(np.random.default_rng(0))
    with pytest.raises(SpaceError, match="did you mean 'momentum'"):
        digits.perturb(params, np.random.default_rng(0), names=["momentun"])


LISTS = {
    "layers": {"values": [[64, 64], [128]]},
    "betas": {"values": [[0.9, 0.99]]},
    "lr": {"min": 0.1, "max": 1.0, "when": {"layers": [[128]]}},
}


def test_lists_come_back_from_a_declaration_and_may_be_conditions():
    space = Space.from_dict(LISTS)
    assert Space.from_dict(space.to_dict()).to_dict() == space.to_dict()
    assert space.decode(np.array([0.0, 0.5])) == {"layers": [64, 64], "betas": [0.9, 0.99]}
    assert space.complete({"layers": (128,)}, np.random.default_rng(0)).keys() == LISTS.keys()


def test_a_configuration_may_be_changed_without_changing_the_space():
    space = Space.from_dict(LISTS)
    configurations = [space.decode(np.array([0.0, 0.5])), *space.grid(2)]
    for params in configurations:
        params["layers"].append(1)
        params["betas"].clear()
    assert space["layers"].values == ([64, 64], [128])
    assert space["betas"].value == [0.9, 0.99]


def test_a_constraint_on_lists_is_refused():
    with pytest.raises(SpaceError, match=r"'layers == 3' compares layers, which has lists"):
        Space.from_dict(LISTS, ["layers == 3"])


def test_a_condition_on_a_list_needs_two_brackets():
    lr = {"min": 0.1, "max": 1.0, "when": {"layers": [64, 64]}}
    hint = r"layers is 64; choose from .*; for the list write layers: \[\[64, 64\]\]"
    with pytest.raises(SpaceError, match=hint):
        Space.from_dict({**LISTS, "lr": lr})
