"""Real parts that tests start and end: brokers, servers, sample data."""
