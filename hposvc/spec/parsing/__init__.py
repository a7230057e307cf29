"""Parsing of spec documents into plain data, with the place of every key for error messages."""
