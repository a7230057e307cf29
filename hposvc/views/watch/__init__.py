"""`watch`: a sweep on the whole screen of a terminal, live, with keys that steer it.

What is shown is computed by pure functions (`board`, `details`, `plot`, `steering`); `screen` puts
it on a terminal with Textual, and is the only part that knows it.
"""
