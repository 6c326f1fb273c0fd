"""How much work a plan is: a few sums, the same for every model and device."""

from __future__ import annotations

from dataclasses import dataclass

from lab.plan import StepPlan


@dataclass(slots=True)
class StepWork:
    """Sums over the rows of a plan, padding included.

    `single_keys` are the keys read by rows of one token, `chunk_pairs` the (query, visible key) pairs of longer rows
    and `chunk_keys` the keys these read, once per row. After each step of a stretch `single_keys` has grown by
    `growing` rows. In a rectangle of single tokens (`width` > 0) every row reads the `width` keys of the longest live
    row, or the `carried` keys of a finished one that is longer.
    """

    tokens: int = 0
    rows: int = 0
    sampled: int = 0
    single_keys: int = 0
    chunk_pairs: int = 0
    chunk_keys: int = 0
    growing: int = 0
    width: int = 0
    carried: int = 0
    padded: bool = False  # a padded kernel computes it
    copies: int = 0  # blocks copied on the device
    swaps: int = 0  # blocks to or from the host

    def keys_after(self, steps: int) -> int:
        """`single_keys` of the step that follows `steps` repetitions of this one."""
        if self.width:
            return self.rows * max(self.width + steps, self.carried)
        return self.single_keys + self.growing * steps

    def keys_of(self, steps: int) -> int:
        """Keys that single rows read in `steps` repetitions together, in closed form."""
        if not self.width:
            return steps * self.single_keys + self.growing * (steps * (steps - 1) // 2)
        level = min(steps, max(0, self.carried - self.width))  # steps in which a finished row is the longest
        rising = steps - level
        return self.rows * (level * self.carried + rising * (self.width + level) + rising * (rising - 1) // 2)


def work_of(plan: StepPlan) -> StepWork:
    """The sums of `plan`. A padding token sees what its row's last real token sees."""
    tokens = sampled = starts = single = pairs = keys = scratch = 0
    for row in plan.rows:
        if row.samples:
            sampled += 1
        count, padding = row.num_tokens, row.padding
        if count == 1 and not padding:
            single += 1
            starts += row.start
        elif count:
            context = row.start + count
            tokens += count + padding
            pairs += count * row.start + count * (count + 1) // 2 + padding * context
            keys += context
        else:  # a finished request that is carried along reads as many scratch slots as it has padding
            scratch += padding
    tokens += single + scratch
    work = StepWork(tokens, len(plan.rows), sampled, starts + single + scratch, pairs, keys, single)
    if plan.attention == "padded" and plan.rows:
        _make_rectangle(work, plan)
    if plan.copies:
        work.copies = sum(copy.kind == "copy" for copy in plan.copies)
        work.swaps = len(plan.copies) - work.copies
    return work


def _make_rectangle(work: StepWork, plan: StepPlan) -> None:
    """A padded kernel computes every row as wide and as deep as the largest."""
    rows = plan.rows
    widest = max(row.num_tokens + row.padding for row in rows)
    live = max((row.start + row.num_tokens + row.padding for row in rows if row.num_tokens), default=0)
    carried = max((row.start + row.padding for row in rows if not row.num_tokens), default=0)
    depth = max(live, carried)
    work.padded = True
    if widest == 1:
        work.width, work.carried, work.single_keys = live, carried, len(rows) * depth
    else:
        work.single_keys, work.growing = 0, 0
        work.chunk_pairs, work.chunk_keys = len(rows) * widest * depth, len(rows) * depth
