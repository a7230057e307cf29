"""Ranks joined by gloo, which train the examples' tasks."""

from joined_ranks import on_ranks, on_two_ranks

__all__ = ["on_ranks", "on_two_ranks"]
