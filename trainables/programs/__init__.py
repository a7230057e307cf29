"""Programs as trainables: start them, hear what they say, end them with all that they started."""
