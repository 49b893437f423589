"""Launchers of the systems that gputally stands in for: their flags and variables become our settings."""
