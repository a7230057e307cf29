"""Specs of other tools in our words: a file for each tool, one form between them, one writer."""
