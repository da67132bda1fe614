"""Exploration of a bound specification, and counterexamples."""
