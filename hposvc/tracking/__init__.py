"""The runs of a sweep: computed from the journal, and sent to sinks such as MLflow off the loop."""
