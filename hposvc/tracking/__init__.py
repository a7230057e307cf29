"""MLflow, as a projection of the journal: told by a process of its own, off the control loop."""
