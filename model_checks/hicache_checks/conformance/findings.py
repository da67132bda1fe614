"""What a run may find wrong: which property of the protocol, what was seen, and whose fault it is.

A finding is a *protocol* violation by the target; a *harness* error, when the target uses what has no stand-in or its
adapter says what cannot be; or *unknown*, when the run did not get far enough to tell.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b

PROTOCOL = "protocol"
HARNESS = "harness"
UNKNOWN = "unknown"


class Broken(AssertionError):
    """The target did something that the specification does not allow, or the harness cannot go on."""

    def __init__(self, property_: str, message: str, kind: str = PROTOCOL, place: str = "") -> None:
        super().__init__(f"{property_}: {message}")
        self.finding = Finding(property_, message, kind, place)


@dataclass(frozen=True)
class Finding:
    """`place`: the event or call at which it shows."""

    property: str
    message: str
    kind: str = PROTOCOL
    place: str = ""

    def __str__(self) -> str:
        return f"{self.property}: {self.message}{f' at {self.place}' if self.place else ''}"


def cause(finding: Finding) -> str:
    """A name of what is behind a finding: the property, the message and the place without what differs from run to
    run."""
    parts = (finding.property, finding.kind, _plain(finding.message), _plain(finding.place))
    return blake2b("\n".join(parts).encode(errors="backslashreplace"), digest_size=4).hexdigest()


def _plain(text: str) -> str:
    """Without what differs from run to run: numbers, quoted names, lists of them, and what would have been right."""
    text = re.sub(r"'[^']*'|\b[0-9a-f]{32,}\w*", "*", text.partition(", explained is")[0])
    while (shorter := re.sub(r"[\[({][^\[\](){}]*[\])}]", "*", text)) != text:
        text = shorter
    text = re.sub(r"\b[abc]#\d+|\d+", "*", text)
    return re.sub(r"\*(?:(?:,|:| or) \*)+", "*", text)
