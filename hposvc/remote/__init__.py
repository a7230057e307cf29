"""Sweeps on a cluster that somebody else runs: what goes there, and how one hears of it."""
