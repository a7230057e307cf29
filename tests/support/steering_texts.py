"""Texts that steer a terminal, or hide in it, and what of them is in a text."""

import unicodedata

STEERS = "\x1b]0;title\x07\x1b[2J\x9b2J\x85\x00\x7f\x1b[8m"  # sequences of C0 and C1
HIDES = "\u202egnp\u2066\u200f\u061c\u200b\u2060\ufeff\xad\u2028\U000e0041\ud800"
TURNS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
KINDS = ("Cc", "Cs", "Zl", "Zp")


def steering(text):
    """Return the characters of a text that steer a terminal, or that nobody sees."""
    return {letter for letter in text if _steers(letter)}


def _steers(letter):
    if letter in "\t\n":
        return False
    turns = unicodedata.bidirectional(letter) in TURNS
    return turns or unicodedata.category(letter) in KINDS or letter in HIDES.replace("gnp", "")
