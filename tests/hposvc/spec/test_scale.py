"""The section `scale`: what is read from it, what is refused, and what follows from it."""

import json
import math
import re

import pytest
from jsonschema import Draft7Validator

from hposvc import spec as specs
from hposvc.drafts.draft import schema
from hposvc.errors import SpecError
from searchers import AcrossSizes, Choice, Tied

LR = {"min": 1e-5, "max": 1e-1, "log": True}
WIDTHS = {"over": "width", "sizes": [256, 512, 1024]}
TIED = [{"width": 256, "layers": 4}, {"width": 512, "layers": 8}, {"width": 1024, "layers": 8}]
VALIDATOR = Draft7Validator(json.loads(schema()))


def sections(scale, **others):
    """Return a complete spec with the section."""
    base = {
        "name": "sizes",
        "trainable": "code:train",
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": {"lr": LR},
        "trials": {"max": 20},
        "engine": "local",
        "tracking": {"send_to": []},
    }
    return {**base, "scale": scale, **others}


def load(scale, **others):
    return specs.load(sections(scale, **others))


def problems(scale, **others):
    """Return what is wrong, a line for each problem."""
    with pytest.raises(SpecError) as caught:
        load(scale, **others)
    return str(caught.value.at("")).splitlines()


@pytest.mark.parametrize(
    ("ends", "sizes"),
    [
        ({"from": 256, "to": 4096}, (256, 512, 1024, 2048, 4096)),
        ({"from": 256, "to": 512}, (256, 512)),
        ({"from": 100, "to": 150}, (100, 150)),
        ({"from": 100, "to": 250}, (100, 200, 250)),
        ({"from": 0.5, "to": 2}, (0.5, 1.0, 2)),
        ({"from": 1, "to": 1024}, tuple(2**n for n in range(11))),
    ],
)
def test_sizes_double_from_the_smallest_to_the_largest(ends, sizes):
    spec = load({"over": "width", **ends})
    assert spec.scale.sizes == sizes
    domain = spec.space["width"]
    assert isinstance(domain, Choice)
    assert domain.values == sizes
    assert domain.ordered


def test_what_is_left_out_has_its_default():
    scale = load(WIDTHS).scale
    assert (scale.tokens_per_weight, scale.at_target) == (None, 1)
    assert load(None).scale is None


@pytest.mark.parametrize("order", [("width", "layers"), ("layers", "width")])
def test_members_of_sizes_are_parameters_too_in_whatever_order(order):
    sizes = [{name: size[name] for name in order} for size in TIED]
    space = load({"over": "width", "sizes": sizes}).space
    assert space["width"].values == (256, 512, 1024)
    assert space["width"].ordered
    assert isinstance(space["layers"], Tied)
    assert space["layers"].values == (4, 8, 8)
    assert set(space.searched) == {"lr", "width"}


@pytest.mark.parametrize(
    "scale",
    [
        WIDTHS,
        {"over": "width", "sizes": TIED, "at_target": 3},
        {"over": "layers", "sizes": [dict(reversed(size.items())) for size in TIED[:2]]},
        {"over": "width", "from": 100, "to": 1000},
    ],
)
def test_it_is_read_back_as_it_was_written(scale):
    spec = load(scale)
    again = specs.load(json.loads(json.dumps(specs.dump(spec))))
    assert again == spec
    assert again.scale.sizes == spec.scale.sizes
    assert dict(again.space) == dict(spec.space)
    written = json.loads(json.dumps(specs.dump(spec)["scale"]))
    assert VALIDATOR.is_valid(sections(written))


def test_a_parameter_that_is_declared_may_be_the_size():
    width = {"values": [64, 128, 512], "ordered": True}
    spec = load({"over": "width"}, parameters={"lr": LR, "width": width})
    assert spec.scale.declared() == {}
    assert spec.space["width"].values == (64, 128, 512)
    sizes = {"values": TIED, "ordered": True}
    assert load({"over": "width"}, parameters={"lr": LR, "size": sizes}).scale.sizes == ()


@pytest.mark.parametrize(
    ("scale", "path", "remedy"),
    [
        ("width", "scale: is 'width'", "give {over: width, from: 256, to: 4096}"),
        (["width"], "scale: is a list", "give {over: width, from: 256, to: 4096}"),
        ({**WIDTHS, "at_targt": 2}, "scale.at_targt: no such key", "did you mean 'at_target'"),
        ({"sizes": [1, 2]}, "scale.over: is missing", "name the parameter that is the size"),
        ({"over": 3, "sizes": [1, 2]}, "scale.over: is 3", "name the parameter"),
        ({"over": "a b", "sizes": [1, 2]}, "scale.over: is 'a b'", "name the parameter"),
        ({"over": "width", "from": 256}, "scale.to: is missing", "give a number above 0"),
        ({"over": "width", "to": 256}, "scale.from: is missing", "give a number above 0"),
        ({"over": "width", "from": 0, "to": 8}, "scale.from: is 0", "give a number above 0"),
        ({"over": "width", "from": "4", "to": 8}, "scale.from: is '4'", "give a number above 0"),
        ({"over": "width", "from": True, "to": 8}, "scale.from: is true", "give a number above 0"),
        ({"over": "width", "from": 8, "to": 8}, "scale.to: is 8, and from is 8", "a larger size"),
        ({"over": "width", "from": 9, "to": 8}, "scale.to: is 8, and from is 9", "a larger size"),
        (
            {"over": "width", "from": 1, "to": 1e6},
            "scale.from: is 1, 20 doublings below to",
            "list up to 12 in sizes",
        ),
        (
            {**WIDTHS, "from": 1, "to": 8},
            "scale.sizes: is given, and from and to too",
            "leave out from and to, or sizes",
        ),
        ({**WIDTHS, "sizes": 256}, "scale.sizes: is 256", "give a list"),
        ({**WIDTHS, "sizes": [256]}, "scale.sizes: has 1 of them", "give 2 to 12 sizes"),
        ({**WIDTHS, "sizes": [*range(1, 14)]}, "scale.sizes: has 13", "give 2 to 12 sizes"),
        ({**WIDTHS, "sizes": [2, 1]}, "scale.sizes[1]: is 1, after 2", "the smallest first"),
        ({**WIDTHS, "sizes": [2, 2]}, "scale.sizes[1]: is 2, after 2", "each once"),
        ({**WIDTHS, "sizes": [-1, 2]}, "scale.sizes[0]: is -1", "list numbers above 0"),
        ({**WIDTHS, "sizes": [0, 2]}, "scale.sizes[0]: is 0", "list numbers above 0"),
        ({**WIDTHS, "sizes": [1, "2"]}, "scale.sizes[1]: is '2'", "list numbers above 0"),
        ({**WIDTHS, "sizes": [False, True]}, "scale.sizes[0]: is false", "list numbers above 0"),
        ({**WIDTHS, "sizes": [TIED[0], 512]}, "scale.sizes[1]: has no width", "{width: 512}"),
        ({**WIDTHS, "sizes": [{"layers": 2}, TIED[0]]}, "scale.sizes[0]: has no width", "add it"),
        (
            {**WIDTHS, "sizes": [TIED[0], {"width": 512}]},
            "scale.sizes[1]: has no layers, which the first choice has",
            "give all choices the same",
        ),
        (
            {**WIDTHS, "sizes": [{"width": 2, "layers": 1}, {"width": 2, "layers": 2}]},
            "scale.sizes[1].width: is 2, after 2",
            "each once",
        ),
        ({**WIDTHS, "at_target": 0}, "scale.at_target: is 0", "give 1 to 100 trials"),
        ({**WIDTHS, "at_target": 101}, "scale.at_target: is 101", "give 1 to 100 trials"),
        ({**WIDTHS, "at_target": 1.5}, "scale.at_target: is 1.5", "give 1 to 100 trials"),
        ({**WIDTHS, "at_target": True}, "scale.at_target: is true", "give 1 to 100 trials"),
        ({**WIDTHS, "tokens_per_weight": 0}, "scale.tokens_per_weight: is 0", "give 20"),
        ({**WIDTHS, "tokens_per_weight": -3}, "scale.tokens_per_weight: is -3", "give 20"),
        ({**WIDTHS, "tokens_per_weight": "20x"}, "scale.tokens_per_weight: is '20x'", "give 20"),
        ({**WIDTHS, "tokens_per_weight": math.inf}, "scale.tokens_per_weight: is inf", "finite"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_its_remedy(scale, path, remedy):
    (line,) = problems(scale)
    assert line.startswith(path)
    assert remedy in line


def test_all_mistakes_are_told_at_once():
    lines = problems({"sizes": 3, "at_target": 0, "tokens": 1})
    assert [line.split(":")[0] for line in lines] == [
        "scale.tokens", "scale.over", "scale.sizes", "scale.at_target",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("scale", "others", "expected"),
    [
        (
            WIDTHS,
            {"parameters": {"lr": LR, "width": {"values": [256, 512]}}},
            "parameters.width: is declared in scale, and width in parameters too; remove it there",
        ),
        (
            {"over": "width"},
            {},
            "scale.over: is width, no parameter; known: lr; or give from and to, or sizes",
        ),
        ({"over": "lr"}, {}, "scale.over: is lr, which has no sizes that grow; list numbers"),
        (
            {"over": "lr"},  # also of the points that are tried first
            {"initial": [{"lr": 1e-3}]},
            "scale.over: is lr, which has no sizes that grow; list numbers",
        ),
        (
            {"over": "width"},
            {"parameters": {"lr": LR, "width": 256}},
            "scale.over: is width, which has no sizes that grow",
        ),
        (
            {"over": "width"},
            {"parameters": {"lr": LR, "width": {"values": [512, 256], "ordered": True}}},
            "scale.over: is width, which has no sizes that grow",
        ),
        (
            {"over": "kind"},
            {"parameters": {"lr": LR, "kind": {"values": ["small", "large"]}}},
            "scale.over: is kind, which has no sizes that grow",
        ),
        (
            {"over": "width"},
            {
                "parameters": {
                    "net": {"values": ["mlp", "none"]},
                    "width": {"values": [64, 128], "when": {"net": "mlp"}},
                }
            },
            "scale.over: is width, which has a condition; drop `when`",
        ),
        (
            WIDTHS,
            {"constraints": ["width * 0.001 <= 0.6"]},
            "scale.over: no configuration has width 1024",
        ),
        (WIDTHS, {"trials": {}}, "trials.max: is missing; scale plans the trials of each size"),
        (WIDTHS, {"trials": {"max": 12}}, "trials.max: is 12; scale plans the trials of each"),
        (
            {**WIDTHS, "at_target": 9},
            {},
            "trials.max: is 20; scale plans the trials of each size; give 21 or more",
        ),
        (
            {"over": "width", "sizes": [*range(1, 13)]},
            {"trials": {"max": 15}},
            "trials.max: is 15; scale plans the trials of each size; give 19 or more",
        ),
        (
            WIDTHS,
            {"scheduler": "asha", "fidelity": {"max": 9}},
            "scheduler: is asha, which compares trials, and those of scale differ in size; "
            "write scheduler: fifo",
        ),
        (
            WIDTHS,
            {
                "metric": None,
                "metrics": [
                    {"name": "loss", "goal": "minimize"},
                    {"name": "s", "goal": "minimize"},
                ],
            },
            "scale: is for one metric, and there are several; give one metric",
        ),
        (
            WIDTHS,
            {"search": {"method": "gp", "repeats": True}},
            "search: repeats trials, and scale plans them; leave repeats out",
        ),
        (
            WIDTHS,
            {"warm_start": {"from": "earlier"}},
            "warm_start: learns from earlier sweeps, which have no sizes; leave it out",
        ),
        (
            WIDTHS,
            {"stop": {"plateau": {"trials": 5}}},
            "stop.plateau: compares trials with earlier ones, and those of scale differ in size",
        ),
        (
            {**WIDTHS, "tokens_per_weight": 20},
            {},
            "scale.tokens_per_weight: counts tokens, and fidelity.unit is step; write fidelity",
        ),
        (
            {**WIDTHS, "tokens_per_weight": 20},
            {"trainable": None, "command": ["./train"], "fidelity": {"unit": "token", "max": 9}},
            "scale.tokens_per_weight: is for a Task, which knows its number of weights",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(scale, others, expected):
    lines = problems(scale, **others)
    assert any(line.startswith(expected) for line in lines), lines


@pytest.mark.parametrize("name", ["median", "hyperband", "pbt"])
def test_no_scheduler_compares_trials_of_several_sizes(name):
    options = {"type": name, **({"interval": 1, "mutate": {"lr": {}}} if name == "pbt" else {})}
    lines = problems(WIDTHS, scheduler=options, fidelity={"max": 9})
    assert any("those of scale differ in size" in line for line in lines)
    assert load(WIDTHS, scheduler="fifo", fidelity={"max": 9}).scheduler.name == "fifo"


def test_the_fewest_trials_are_enough():
    assert load(WIDTHS, trials={"max": 13}).trials.max == 13


def test_tokens_for_each_weight_go_to_the_training():
    fidelity = {"unit": "token", "max": 10**9}
    spec = load({**WIDTHS, "tokens_per_weight": 20}, fidelity=fidelity)
    assert spec.training.tokens_per_weight == 20.0
    assert load(WIDTHS, fidelity=fidelity).training.tokens_per_weight is None


def test_the_search_method_is_that_of_the_spec_at_the_smallest_size():
    spec = load({**WIDTHS, "at_target": 2}, search="tpe")
    searcher = spec.searcher()
    assert isinstance(searcher, AcrossSizes)
    assert type(searcher.searcher).__name__ == "TPE"
    assert (searcher.over, searcher.trials, searcher.at_target) == ("width", 20, 2)
    assert not isinstance(load(None).searcher(), AcrossSizes)


def test_points_that_are_tried_first_have_the_smallest_size_or_the_one_they_say():
    initial = [{"lr": 1e-3}, {"lr": 1e-2, "width": 1024}]
    baseline = {"params": {"lr": 1e-4}}
    spec = load(WIDTHS, initial=initial, baseline=baseline)
    assert [*spec.first_points] == [
        {"width": 256, "lr": 1e-4}, {"width": 256, "lr": 1e-3}, {"width": 1024, "lr": 1e-2},
    ]  # fmt: skip
    assert [*load(None, initial=initial[:1]).first_points] == [{"lr": 1e-3}]


def test_earlier_sweeps_teach_nothing_unasked():
    """Their trials have a size of their own, which they do not say."""
    assert load(None).finds_earlier
    assert not load(WIDTHS).finds_earlier


@pytest.mark.parametrize(
    ("scale", "is_valid"),
    [
        (WIDTHS, True),
        ({"over": "width", "from": 256, "to": 4096, "at_target": 2}, True),
        ({"over": "width", "sizes": TIED, "tokens_per_weight": 20}, True),
        ({"over": "width"}, True),
        ({"sizes": [1, 2]}, False),
        ({**WIDTHS, "size": 3}, False),
        ({**WIDTHS, "sizes": ["256"]}, False),
        ({"over": "width", "from": "256", "to": 512}, False),
        ({**WIDTHS, "at_target": 0}, False),
        ({**WIDTHS, "tokens_per_weight": 0}, False),
        ("width", False),
    ],
)
def test_editors_mark_what_is_misspelled(scale, is_valid):
    assert VALIDATOR.is_valid(sections(scale)) == is_valid


def test_a_mistake_in_a_file_is_told_with_its_line(tmp_path):
    file = tmp_path / "sweep.yaml"
    text = json.dumps(sections("SCALE"), indent=1)
    file.write_text(text.replace('"SCALE"', "{over: width,\n  sizes: [512, 256]}"))
    with pytest.raises(SpecError) as caught:
        specs.load(file)
    line = text.splitlines().index(' "scale": "SCALE"') + 2
    assert re.search(rf"sweep.yaml:{line}:\d+: scale.sizes\[1\]: is 256", str(caught.value))
