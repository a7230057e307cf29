"""What people look at after a sweep, or amid it: charts, and the report that holds them."""
