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
        Channel(slack="${HOOK}").title,
        Channel(email=("a@b.example", "c@d.example")).title,
    ]
    assert titles == [
        "webhook hooks.example.org",
        "slack ${HOOK}",
        "email a@b.example, c@d.example",
    ]


@pytest.mark.parametrize("url", ["https://hooks.example.org:x/sesame", "sesame", "sesame" * 999])
def test_an_address_that_is_refused_is_not_repeated_since_it_may_be_a_secret(url):
    with pytest.raises(SpecError) as caught:
        make_spec(notify={"webhook": url})
    assert "sesame" not in f"{caught.value}"


@pytest.mark.parametrize(
    "address",
    ["a@b@c", "a b@c", "a@-c", "a..b@c", ".a@c", "a@c.", "<a@c>", "a@c,b@c", "é@c", "@c", 3, []],
)
def test_what_is_no_single_plain_address_gets_no_mail(address):
    with pytest.raises(SpecError, match="give an address"):
        make_spec(notify={"email": address})
