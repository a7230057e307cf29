"""The verbs of hposvc, a file each: its command, its table, its JSON, and the function behind them.

The function takes plain arguments, returns data, raises our errors and prints nothing: the command
line, the HTTP server and Python call it. It takes a `Place`, the sweeps of this home or a server's,
wherever it can do its work for both. What only reads a sweep is a function of analysis/ or
reporting/ that takes an `OpenSweep`; the verb's file names it. The command parses, calls the
function, and prints.

The command line loads the file of the verb that is called, and the server most of them. So a file
imports what it needs at its top, but for what loads ray, torch, mlflow or optuna.
"""
