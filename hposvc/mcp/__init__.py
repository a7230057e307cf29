"""An MCP server: the verbs as tools for agents, on stdio.

A tool calls the function of its verb, on this home or on a server, and keeps nothing in memory:
whatever it answers, it has read from the journal. So client and server may die at any moment.
"""
