"""Processes that carry out orders: a leader, its ranks, and what goes between them."""
