"""MLflow as a projection of the journal, written by a separate process off the control loop."""
