"""The model behind the simulated machine: who lives when, what they want, and what a GPU makes of it."""

from typing import Literal

Sampler = Literal["fraction", "one-owner"]
"""What the driver's utilization samples mean there."""
