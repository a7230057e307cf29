"""Agents: processes that take trials of a sweep from a server, and train them without Ray."""
