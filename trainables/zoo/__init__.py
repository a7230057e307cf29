"""Trainables that are ready to sweep, each in a file of its own."""
