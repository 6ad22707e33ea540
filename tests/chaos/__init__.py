"""A home whose parts fail at random; docs/chaos.md."""
