"""Training of a Task: the steps of an order, and the updates in them."""
