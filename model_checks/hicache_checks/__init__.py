"""The machinery that holds implementations to the specification: exploration, conformance, reports, command line."""

from __future__ import annotations

__version__ = "0.1.0"
