"""The state that updates change, and the numbers that it is made of."""
