"""mDNS: the only folder that knows zeroconf."""
