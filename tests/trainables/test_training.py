import math

import pytest

from trainables import Training


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "dpp"}, r"strategy is 'dpp'; choose one of single, ddp.*\(ddp\?\)"),
        ({"accumulate": 0}, "accumulate is 0; give 1 or more"),
        ({"accumulate": True}, "accumulate is True; give a whole number"),
        ({"clip": 0.0}, "clip is 0.0; give more than 0"),
        ({"clip": math.nan}, "clip is nan; give more than 0"),
    ],
)
def test_an_impossible_option_is_named_with_its_remedy(options, message):
    with pytest.raises(ValueError, match=message):
        Training(**options)
