"""Experiments that the command runs: networks, what is measured of them, and what was published about them."""
