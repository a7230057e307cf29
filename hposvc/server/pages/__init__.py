"""Pages for people: HTML of what the API has as JSON. They need no JavaScript to be read."""
