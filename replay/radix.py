"""One replica's prefix cache as a radix tree, as SGLang keeps it.

Pages instead of blocks, runs of them as nodes that are split where prompts part. The rules that
differ from `blocks.py`:

- Memory is freed leaf by leaf, the least recently used unlocked leaf first, and of a leaf all pages
  at once (`whole_leaves`), so that more may go than is needed.
- Running requests lock the path to their last page. At the end of a prefill its pages are put into
  the tree; where others have put the same there, the second copy is freed at once.

With leaves freed page by page and no two requests computing the same pages at a time, it answers
as a pool of blocks does.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count


@dataclass(eq=False, slots=True)
class Node:
    """A run of pages behind those of its parent. `locks`: running requests below or at it."""

    pages: list[int]
    parent: "Node | None"
    used: int = 0
    locks: int = 0
    children: dict[int, "Node"] = field(default_factory=dict)


@dataclass(slots=True)
class Lock:
    """What a running request holds: a path in the tree, and `own_pages` outside of it."""

    chain: Sequence[int]
    prompt_pages: int
    hit_pages: int
    node: Node
    own_pages: int


class RadixCache:
    """The pages of one replica: held by running requests, cached, or free."""

    def __init__(self, capacity_pages: int, whole_leaves: bool = True) -> None:
        if capacity_pages < 1:
            raise ValueError(f"capacity_pages must be at least 1, got {capacity_pages}")
        self.capacity_pages = capacity_pages
        self.evicted_pages = 0
        self._whole_leaves = whole_leaves
        self._root = Node([], None)
        self._clock = 0
        # Leaves by their last use, some of them out of date; the serial number parts equal ones.
        self._leaves: list[tuple[int, int, Node]] = []
        self._serial = count()
        self._cached, self._locked, self._own = 0, 0, 0

    @property
    def running_pages(self) -> int:
        """Pages that running requests hold, in the tree and beside it."""
        return self._locked + self._own

    @property
    def resident_pages(self) -> int:
        """Pages in use: running and cached."""
        return self._cached + self._own

    def look_up(self, chain: Sequence[int]) -> int:
        """Count the leading pages of `chain` that could be reused now. Changes nothing."""
        node, found = self._root, 0
        while found < len(chain):
            child = node.children.get(chain[found])
            if child is None:
                break
            shared = _shared(child.pages, chain, found)
            found += shared
            if shared < len(child.pages):
                break
            node = child
        return found

    def start(
        self, chain: Sequence[int], *, prompt_pages: int, reusable: int, total_pages: int
    ) -> Lock | None:
        """Reserve memory for one request, reusing what is cached. None: it must wait.

        As `BlockPool.start`. Raises ValueError for a request that would not fit into an empty
        cache.
        """
        if total_pages > self.capacity_pages:
            raise ValueError(f"a request of {total_pages} pages never fits {self.capacity_pages}")
        node = self._walk(chain[: min(reusable, prompt_pages)])
        hits = _depth(node)
        idle = _idle_on_path(node)
        fresh = total_pages - hits
        if self.running_pages + idle + fresh > self.capacity_pages:
            return None
        self._lock(node, 1)
        self._own += fresh
        self._evict(self.resident_pages - self.capacity_pages)
        return Lock(chain, prompt_pages, hits, node, fresh)

    def end_prefill(self, lock: Lock) -> None:
        """Put the pages of the prompt into the tree."""
        self._publish(lock, lock.prompt_pages)

    def end(self, lock: Lock) -> None:
        """Put generated pages into the tree too, and give everything back."""
        self._publish(lock, len(lock.chain))
        self._lock(lock.node, -1)
        self._touch(lock.node)
        self._own -= lock.own_pages
        lock.own_pages = 0

    def clear(self) -> None:
        """Forget every cached page, as a restart does. Only while nothing runs."""
        if self.running_pages:
            raise ValueError(f"{self.running_pages} pages are held by running requests")
        self._root, self._cached, self._leaves = Node([], None), 0, []

    def _walk(self, chain: Sequence[int]) -> Node:
        """The node that ends with the last page of `chain` that is there, split off if need be."""
        node, found = self._root, 0
        while found < len(chain):
            child = node.children.get(chain[found])
            if child is None:
                break
            shared = _shared(child.pages, chain, found)
            found += shared
            node = child if shared == len(child.pages) else _split(child, shared)
            if node is not child:
                break
        return node

    def _publish(self, lock: Lock, until: int) -> None:
        """The pages of the chain up to `until`; those already there are freed as second copies."""
        chain = lock.chain[:until]
        node = self._walk(chain)
        missing = list(chain[_depth(node) :])
        if missing:
            child = Node(missing, node)
            node.children[missing[0]] = child
            node = child
            self._cached += len(missing)
        moved = min(max(len(chain) - _depth(lock.node), 0), lock.own_pages)
        self._own -= moved
        lock.own_pages -= moved
        self._lock(node, 1)
        self._lock(lock.node, -1)
        lock.node = node
        self._touch(node)

    def _lock(self, node: Node, change: int) -> None:
        """Lock the path to a node once more, or once less."""
        step: Node | None = node
        while step is not None:
            was_free = step.locks == 0
            step.locks += change
            if was_free != (step.locks == 0):
                self._locked += len(step.pages) if was_free else -len(step.pages)
                self._remember(step)
            step = step.parent

    def _touch(self, node: Node) -> None:
        self._clock += 1
        step: Node | None = node
        while step is not None:
            step.used = self._clock
            step = step.parent
        self._remember(node)

    def _remember(self, node: Node) -> None:
        """A node may have become one that can be freed, or another time."""
        if _is_free_leaf(node):
            heappush(self._leaves, (node.used, next(self._serial), node))

    def _evict(self, pages: int) -> None:
        """Free at least so many pages, if so many are unlocked."""
        while pages > 0 and self._leaves:
            used, _, leaf = heappop(self._leaves)
            if used != leaf.used or not _is_free_leaf(leaf):
                continue
            lost = len(leaf.pages) if self._whole_leaves else 1
            parent = leaf.parent
            if lost == len(leaf.pages) and parent is not None:
                del parent.children[leaf.pages[0]]
                leaf.parent = None
                self._remember(parent)
            else:
                leaf.pages.pop()
                self._remember(leaf)
            self._cached -= lost
            self.evicted_pages += lost
            pages -= lost


def _is_free_leaf(node: Node) -> bool:
    """In the tree, not its root, without children and not locked."""
    return node.parent is not None and not node.children and node.locks == 0


def _shared(pages: Sequence[int], chain: Sequence[int], begin: int) -> int:
    """How many pages of a run are those of the chain from `begin` on."""
    most = min(len(pages), len(chain) - begin)
    if pages[:most] == chain[begin : begin + most]:  # nearly always, and far quicker
        return most
    shared = 0
    while shared < most and pages[shared] == chain[begin + shared]:
        shared += 1
    return shared


def _split(node: Node, at: int) -> Node:
    """Cut a run in two; returns the upper part, which has the same locks and time."""
    assert node.parent is not None
    upper = Node(node.pages[:at], node.parent, node.used, node.locks)
    node.parent.children[upper.pages[0]] = upper
    node.pages, node.parent = node.pages[at:], upper
    upper.children[node.pages[0]] = node
    return upper


def _depth(node: Node) -> int:
    """Pages from the root to the end of a node."""
    pages, step = 0, node.parent
    while step is not None:
        pages += len(step.pages)
        step = step.parent
    return pages + len(node.pages)


def _idle_on_path(node: Node) -> int:
    """Pages on the path to a node that no running request holds."""
    idle = 0
    while node.parent is not None:
        idle += 0 if node.locks else len(node.pages)
        node = node.parent
    return idle
