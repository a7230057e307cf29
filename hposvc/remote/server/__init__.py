"""The client's side of a server: its sweeps are read, followed and submitted as those of a home."""
