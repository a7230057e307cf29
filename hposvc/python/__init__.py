"""The verbs in Python: `hposvc.Sweep`, `hposvc.load` and `hposvc.connect`."""
