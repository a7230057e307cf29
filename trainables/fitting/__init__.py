"""Training a Task: the steps of an order, an update, and what updates are made of."""
