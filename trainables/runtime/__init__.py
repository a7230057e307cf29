"""The processes that carry out orders: a coordinator, its ranks, and their messages."""
