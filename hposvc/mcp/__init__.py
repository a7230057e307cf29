"""An MCP server: the verbs as tools for agents, on stdio.

It keeps nothing in memory: a tool answers from the journal, so client and server may die anytime.
"""
