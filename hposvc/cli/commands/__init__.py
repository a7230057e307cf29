"""The verbs of the command line, one file for each group of related verbs."""
