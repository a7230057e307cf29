"""What training will take of a machine's memory, before any of it is taken."""
