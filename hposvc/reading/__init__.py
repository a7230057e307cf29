"""Reading documents: plain data with the place of every key, and errors that name it."""
