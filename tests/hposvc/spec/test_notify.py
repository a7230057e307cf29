"""The section `notify`; tests/specs/bad has what is refused."""

import pytest
from simulated_sweeps import make_spec

from hposvc.errors import SpecError
from hposvc.spec.notify import Channel, Moment

URL = "https://hooks.example.org/services/T0/sesame"


def test_moments_read_like_a_sentence_and_words_alone_have_their_usual_thresholds():
    on = ["done", {"plateau": 5}, {"budget": ["90%", 0.5]}, {"stalled": "10m"}, "new_best"]
    assert Channel(webhook=URL, on=on).moments == (
        Moment("done"),
        Moment("plateau", 5),
        Moment("budget", 0.9),
        Moment("budget", 0.5),
        Moment("stalled", 600),
        Moment("new_best"),
    )
    usual = Channel(webhook=URL, on=["budget", "plateau", "stalled"]).moments
    assert [moment.at for moment in usual] == [0.5, 0.8, 1.0, 20, 1800]
    assert [moment.what for moment in Channel(webhook=URL).moments] == ["done", "failed", "stalled"]


def test_a_title_holds_no_secret():
    titles = [
        Channel(webhook=URL).title,
        Channel(apprise="${HOOK}").title,
        Channel(apprise="slack://T0/B0/sesame").title,
    ]
    assert titles == [
        "webhook hooks.example.org",
        "apprise ${HOOK}",
        "slack",
    ]


@pytest.mark.parametrize(
    ("key", "address"),
    [
        ("webhook", "https://hooks.example.org:x/sesame"),
        *[(key, text) for key in ("webhook", "apprise") for text in ("sesame", "sesame" * 999)],
        ("apprise", "slack://sesame\nx"),
    ],
)
def test_an_address_that_is_refused_is_not_repeated_since_it_may_be_a_secret(key, address):
    with pytest.raises(SpecError) as caught:
        make_spec(notify={key: address})
    assert "sesame" not in f"{caught.value}"
