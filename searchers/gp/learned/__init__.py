"""What hyperparameters of the same role have in common, learned from tuning tables."""
