"""Prior on hyperparameters by their role, learned from tuning tables."""
