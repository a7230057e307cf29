"""Sentences as HTML: `words` between backquotes are code, and a number keeps its percent sign."""

import re

from markupsafe import Markup, escape

CODE = re.compile("`([^`]*)`")
PERCENT = re.compile(r"(?<=\d) %")


def prose(sentence: str) -> Markup:
    """Return a sentence as HTML, in which all else is escaped."""
    text = PERCENT.sub("\N{NO-BREAK SPACE}%", str(escape(sentence)))
    return Markup(CODE.sub(r"<code>\1</code>", text))
