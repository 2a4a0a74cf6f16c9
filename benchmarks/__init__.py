"""Benchmarks: `python -m benchmarks.NAME`, each prints a table and, with `-o FILE`, writes it as JSON."""
