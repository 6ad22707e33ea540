"""What only tests and the demo run: the other side of the outpost's contract."""
