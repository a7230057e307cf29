"""hposvc in the words of other libraries: a module for each, public as `hposvc.NAME`.

Each module imports its library, and is imported on first use. Nothing in hposvc imports this room.
"""
