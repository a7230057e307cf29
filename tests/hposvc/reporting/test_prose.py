"""Sentences with code in HTML."""

from hposvc.reporting.prose import prose


def test_code_is_marked_and_nothing_else_is_markup():
    said = prose("`hposvc extend <b>` adds `a & b`, <i>really</i>; a ` alone stays.")
    assert said == (
        "<code>hposvc extend &lt;b&gt;</code> adds <code>a &amp; b</code>, "
        "&lt;i&gt;really&lt;/i&gt;; a ` alone stays."
    )
