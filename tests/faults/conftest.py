"""The node of every test here."""

from tests.faults.nodes import fake

__all__ = ["fake"]
