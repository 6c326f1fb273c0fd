"""Records of steps for the batch strip. Where they are too many, neighbours become one: nothing that was busy is lost.

A record is [index, start, end, rows that computed prompts, decoded, had finished, tokens computed, padding, sampled,
running, waiting, blocks used, free, cached]. One that stands for several steps has three more numbers: how many steps,
and the fewest and most rows of one of them. Its rows are then means over its time, its tokens sums, and what comes
after these is that of its last step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

INDEX, START, END, ROWS, SUMS, PLAIN = 0, 1, 2, slice(3, 6), slice(6, 9), 14
NEAR = 0.1  # steps further apart than this share of their common time are joined only when nothing else helps

Record = list[float]


def count_of(record: Record) -> int:
    """Steps that a record stands for."""
    return int(record[PLAIN]) if len(record) > PLAIN else 1


def joined(a: Record, b: Record) -> Record:
    """One record for two neighbours."""
    span = b[END] - a[START]
    weights = ((a[END] - a[START]) / span, (b[END] - b[START]) / span) if span > 0 else (0.5, 0.5)
    rows = [round(x * weights[0] + y * weights[1], 3) for x, y in zip(a[ROWS], b[ROWS], strict=True)]
    sums = [x + y for x, y in zip(a[SUMS], b[SUMS], strict=True)]
    (low, high), (least, most) = _bounds(a), _bounds(b)
    bounds = [min(low, least), max(high, most)]
    return [a[INDEX], a[START], b[END], *rows, *sums, *b[9:PLAIN], count_of(a) + count_of(b), *bounds]


def _bounds(record: Record) -> tuple[float, float]:
    if len(record) > PLAIN:
        return record[PLAIN + 1], record[PLAIN + 2]
    return (rows := sum(record[ROWS])), rows


class Merged:
    """At most `limit` records, equally coarse; the newest stays as it is."""

    def __init__(self, limit: int):
        self.limit, self.per = limit, 1
        self._records: list[Record] = []
        self._last: Record | None = None

    def __len__(self) -> int:
        return len(self._records) + (self._last is not None)

    def __iter__(self) -> Iterator[Record]:
        yield from self._records
        if self._last is not None:
            yield self._last

    def append(self, record: Record) -> None:
        """The next step, or several of them."""
        if self._last is not None:
            self._put(self._records, self._last, NEAR)
        self._last = record
        near = NEAR
        while len(self) > self.limit:
            self.per *= 2
            records: list[Record] = []
            for old in self._records:
                self._put(records, old, near)
            near = NEAR if len(records) < len(self._records) else 1.0
            self._records = records

    def _put(self, records: list[Record], record: Record, near: float) -> None:
        last = records[-1] if records else None
        if last is not None and count_of(last) + count_of(record) <= self.per:
            if record[START] - last[END] <= near * (record[END] - last[START]):
                records[-1] = joined(last, record)
                return
        records.append(record)

    def clear(self) -> None:
        """They are on the other side."""
        self._records, self._last, self.per = [], None, 1


class History:
    """The newest half of `limit` records as they are, all older ones merged into the other half."""

    def __init__(self, limit: int):
        self._old, self._new, self._room = Merged(limit - limit // 2), deque[Record](), limit // 2

    def __len__(self) -> int:
        return len(self._old) + len(self._new)

    def __iter__(self) -> Iterator[Record]:
        yield from self._old
        yield from self._new

    def append(self, record: Record) -> None:
        """The next step."""
        self._new.append(record)
        if len(self._new) > self._room:
            self._old.append(self._new.popleft())
