"""What is known of prompts: a dict of dicts, one node for each page, a page of one token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Node:
    """A page in memory. `pins`: fetches that will hang their pages under it."""

    page: int = -1
    pins: int = 0
    below: dict[int, Node] = field(default_factory=dict)


class Trie:
    """All nodes, from the root, which is no page."""

    def __init__(self) -> None:
        self.root = Node()

    def walk(self, prompt: Sequence[int]) -> tuple[Node, int]:
        """The deepest node of a prompt, and how deep it is."""
        node, depth = self.root, 0
        while depth < len(prompt) and prompt[depth] in node.below:
            node, depth = node.below[prompt[depth]], depth + 1
        return node, depth

    def size(self, node: Node | None = None) -> int:
        """Pages in memory below a node."""
        below = (node or self.root).below.values()
        return len(below) + sum(map(self.size, below))

    def loose(self) -> int:
        """Pages that can be dropped: no pin is on them or below them."""
        return self._loose(self.root)[0]

    def drop(self) -> int:
        """Forget one page that can be dropped, and return it."""
        node = self.root
        while True:
            token, child = next((t, c) for t, c in node.below.items() if self._loose(c)[0] or self._is_loose(c))
            if not child.below:
                return node.below.pop(token).page
            node = child

    def _is_loose(self, node: Node) -> bool:
        return not node.pins and not node.below

    def _loose(self, node: Node) -> tuple[int, bool]:
        """How many pages below a node can be dropped, and whether there is a pin on it or below."""
        count, pinned = 0, node.pins > 0
        for child in node.below.values():
            under, is_held = self._loose(child)
            count += under + (not is_held)
            pinned |= is_held
        return count, pinned
