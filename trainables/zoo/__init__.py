"""Trainables that are ready to sweep, one a file."""
