"""The errors Lowtide raises. Each is one sentence with the offending value and what to do."""

from __future__ import annotations


class LowtideError(Exception):
    """Base of every error that Lowtide raises on purpose."""


class InputError(LowtideError, ValueError):
    """Something that was passed in cannot be used: a size, a name, a file, a plan for another step."""


class TraceError(LowtideError):
    """The training step cannot be traced; the message names the module and the reason."""


class PlanError(LowtideError):
    """A plan breaks the rules of its step; the message names the first violation."""


class ReplayError(LowtideError, RuntimeError):
    """A dropped activation cannot be rebuilt, so that the gradients would be wrong: backward stops here."""
