"""The model behind the simulated machine: who lives when, what they want, and what a GPU makes of it."""
