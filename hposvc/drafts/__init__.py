"""A first spec for code that people have: from a script's arguments, or a class's fields."""
