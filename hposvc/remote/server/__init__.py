"""The sweeps of a server: read them, submit new ones, steer and follow them.

For each function that takes a home's sweeps there is one here that takes a `Server`, with the same
name and the same arguments; client.py pairs them. An `address` of a Ray cluster is of no use to a
server, which has its own. The code that a sweep trains is not needed here.
"""
