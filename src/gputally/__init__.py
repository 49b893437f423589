"""gputally says who uses each GPU, how much, and for how many joules."""

__version__ = "0.1.0"
