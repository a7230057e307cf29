"""Metrics in a program's output. If these fail, a report is lost, doubled or made up."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.metrics import NoNumber
from trainables.programs.output_metrics import LONGEST, Collector, UnreadableMetric

LOSS = r"(?:epoch (?P<step>\d+).*)?loss=(?P<loss>\S+)"


def collected(pattern, *chunks, metrics=("loss",)):
    reports = []
    collector = Collector(re.compile(pattern), metrics, lambda *report: reports.append(report))
    for chunk in (*chunks, b""):
        collector.feed(chunk)
    return reports


@given(st.lists(st.integers(1, 60)))
def test_lines_may_come_in_any_pieces(cuts):
    text = b"".join(b"epoch %d: loss=%d\n" % (step, step) for step in range(1, 9))
    chunks, rest = [], text
    for cut in cuts:
        chunks.append(rest[:cut])
        rest = rest[cut:]
    chunks = [chunk for chunk in [*chunks, rest] if chunk]
    assert collected(LOSS, *chunks) == [(step, {"loss": step}) for step in range(1, 9)]


def test_a_line_without_an_end_counts_when_the_output_ends():
    assert collected(LOSS, b"loss=0.5") == [(None, {"loss": 0.5})]


def test_bytes_that_are_no_text_hide_nothing():
    assert collected(LOSS, b"\xff\xfe\x80 loss=1 \xc3\n") == [(None, {"loss": 1.0})]


def test_a_line_that_never_ends_is_not_kept():
    reports = []
    collector = Collector(re.compile(LOSS), ("loss",), lambda *report: reports.append(report))
    for _ in range(1000):
        collector.feed(b"x" * 2**16)
    assert len(collector._rest) <= LONGEST
    collector.feed(b"\nloss=1\n")
    assert reports == [(None, {"loss": 1.0})]


def test_several_metrics_are_waited_for_together():
    """A report without one of the metrics would make the trial fail."""
    pattern = r"(?P<name>\w+)=(?P<value>\S+)"
    reports = collected(pattern, b"loss=1\nsize=5\nloss=2\nsize=6\n", metrics=("loss", "size"))
    assert reports == [(None, {"loss": 1.0, "size": 5.0}), (None, {"loss": 2.0, "size": 6.0})]


def test_a_printed_step_without_the_sweep_s_metric_is_reported_when_it_is_over():
    pattern = r"epoch (?P<step>\d+) train=(?P<train>\S+)(?: loss=(?P<loss>\S+))?"
    lines = b"epoch 1 train=3\nepoch 2 train=2 loss=0.5\nepoch 3 train=1\n"
    assert collected(pattern, lines) == [
        (1, {"train": 3.0}),
        (2, {"train": 2.0, "loss": 0.5}),
        (3, {"train": 1.0}),
    ]
    assert collected(r"train=(?P<train>\S+)|loss=(?P<loss>\S+)", b"train=3\ntrain=2\n") == []


def test_names_and_values_are_metrics_of_any_name():
    pairs = r"(?P<name>[\w/]+)=(?P<value>\S+)"
    assert collected(pairs, b"step=2 val/acc=0.5 loss=1\n") == [(2, {"val/acc": 0.5, "loss": 1.0})]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"loss=(?P<loss>\S+)", r"found 'low' for loss in the line 'loss=low'; .* match numbers"),
        (r"(?P<loss>)(?P<step>loss)", "found '' for loss"),
        (r"=(?P<step>l)|(?P<loss>x)", "found 'l' for step .* match whole numbers only"),
    ],
)
def test_what_is_no_number_is_shown(pattern, message):
    with pytest.raises(UnreadableMetric, match=message):
        collected(pattern, b"loss=low\n")


def test_only_the_sweep_s_metric_must_be_a_number():
    pairs = r"(?P<name>[\w@]+)=(?P<value>\S+)"
    printed = b"recall@10=0.5 best=cat loss=1\n"
    found = {"recall@10": 0.5, "best": NoNumber("'cat'"), "loss": 1.0}
    assert collected(pairs, printed) == [(None, found)]


EACH = r"(?:epoch (?P<step>\d+): )?(?:loss=(?P<loss>\S+)|latency=(?P<latency>\S+))"


def collected_with_limit(output):
    """Return the reports of a program whose latency has a limit."""
    reports = []
    pattern = re.compile(EACH)
    collector = Collector(pattern, ("loss",), lambda *report: reports.append(report), ("latency",))
    for chunk in (output, b""):
        collector.feed(chunk)
    return reports


@pytest.mark.parametrize(
    "line", [b"epoch %d: loss=%d\nlatency=9\n", b"epoch %d: loss=%d\nepoch %d: latency=9\n"]
)
def test_a_metric_with_a_limit_is_of_the_step_that_it_is_printed_in(line):
    """A metric joined to the next step, or to none, would make trials break limits they keep."""
    output = b"".join(line % ((step,) * line.count(b"%d")) for step in (1, 2))
    assert collected_with_limit(output) == [
        (step, {"loss": float(step), "latency": 9.0}) for step in (1, 2)
    ]


@pytest.mark.parametrize("before", [b"loss=1\n", b"epoch 1: loss=1\n"])
def test_a_step_without_the_metric_with_a_limit_is_reported_as_the_next_begins(before):
    """The step must not be lost, nor take the next step's number or latency."""
    output = before + before.replace(b"1", b"2") + b"latency=9\n"
    steps = (1, 2) if b"epoch" in before else (None, None)
    assert collected_with_limit(output) == [
        (steps[0], {"loss": 1.0}),
        (steps[1], {"loss": 2.0, "latency": 9.0}),
    ]


def test_the_last_step_is_reported_when_the_output_ends_without_the_metric_with_a_limit():
    assert collected_with_limit(b"loss=1\nlatency=2\nloss=3") == [
        (None, {"loss": 1.0, "latency": 2.0}),
        (None, {"loss": 3.0}),
    ]
    assert collected_with_limit(b"latency=2\n") == []


def test_a_report_that_waited_is_as_old_as_what_it_holds():
    """A checkpoint written later belongs to the next step."""
    seen = []
    collector = Collector(
        re.compile(EACH), ("loss",), lambda *_: seen.append(collector.seen_ns), ("latency",)
    )
    collector.feed(b"loss=1\n")
    found_ns = collector.seen_ns
    collector.feed(b"loss=2\n")
    assert seen == [found_ns]
    assert collector.seen_ns > found_ns


@pytest.mark.parametrize(
    "line",
    [
        "\x1b[32mepoch \x1b[1m2\x1b[0m loss=\x1b[38;5;9m0.5\x1b[0m",
        "\x1b]8;;file://x\x1b\\epoch 2\x1b]8;;\x07 \x1b(Bloss=0.5\x1b[K",
        "\x1b]0;title\x07\x1b[2K\x1b[1Gepoch 2 loss=0.5\x1b[?25h",
        "\x1b7epoch 2 loss=0.5\x1b8",
        "\x1b[35m12:01:02\x1b[0m | \x1b[1mINFO    \x1b[0m | epoch 2 loss=0.5\r\n",
        " 10%|#   | epoch 1 of\r 90%|### | epoch 2 loss=\x1b[31m0.5\x1b[0m\r",
    ],
)
def test_codes_for_a_terminal_hide_nothing(line):
    assert collected(LOSS, line.encode()) == [(2, {"loss": 0.5})]


@given(st.integers(1, 3 * LONGEST), st.integers(1, 3 * LONGEST), st.integers(1, LONGEST))
def test_both_ends_of_a_long_line_are_searched_and_no_number_is_cut(before, after, size):
    line = b"#" * before + b" acc=0.25 " + b"12345 " * (after // 6) + b"loss=0.123456789\n"
    chunks = [line[start : start + size] for start in range(0, len(line), size)]
    [(_, found)] = collected(r"loss=(?P<loss>[\d.]+)", *chunks)
    assert found == {"loss": 0.123456789}
    either = r"acc=(?P<acc>[\d.]+)|loss=(?P<loss>[\d.]+)"
    [(_, found)] = collected(either, *chunks)
    assert found.get("acc", 0.25) == 0.25
