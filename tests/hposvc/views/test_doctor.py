from printed import text_of

from hposvc.operations.doctor import Check
from hposvc.views.doctor import checks


def test_each_check_has_a_row_and_its_remedy_stands_below_it():
    rows = [Check("ray", "ok", "2.60"), Check("disk", "fail", "0 GB left", "free [some]")]
    text = text_of(checks(rows))
    assert text.index("2.60") < text.index("0 GB left") < text.index("→ free [some]")
    assert text.count("→") == 1
