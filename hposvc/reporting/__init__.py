"""Pictures and words of a sweep, at any time: charts, and the report that holds them."""
