"""What notebooks 05, 06 and 08 stand on: drawings, price lists, broken engines, the experiment."""

import pytest

import lab
from lab.course import broken_memory, draw_blocks, draw_tree, families, kv_use, order_grid, pcie, tiny_tree
from lab.course.block_map import block_map, block_maps, name_of, pools
from lab.course.broken import run_planted
from lab.course.exercises import nb05, nb06, nb08
from lab.course.order_rule import OrderRule
from lab.course.prompt_parts import PARTS, computed_with
from lab.course.tiny_tree import TinyTree
from lab.errors import BadPolicy
from lab.workload import fixed_workload
from tests.oracles import HashModel

PROMPTS = [tuple(range(40)) + tuple(range(500 + 10 * i, 506 + 10 * i)) for i in range(6)]
WORK = fixed_workload(PROMPTS, [9, 20, 33, 4, 16, 12], [0.0, 0.0, 0.1, 0.1, 0.3, 0.4])


@pytest.mark.parametrize("bug", broken_memory.BUGS)
def test_tokens_stay_right(bug):
    options = {
        "batching": "continuous:3",
        "prefix_cache": "radix",
        "blocks": 40,
        "block_size": 4,
        "chunking": "budget:16",
    }
    right = run_planted(WORK, HashModel(), lambda engine: None, **options)
    wrong = broken_memory.run(WORK, HashModel(), bug, **options)
    assert right.outputs == wrong.outputs


def test_an_unknown_bug_is_named():
    with pytest.raises(BadPolicy, match="09.9"):
        broken_memory.run(WORK, lab.Priced(), "09.9")


def test_the_book_s_tree_forgets_exactly_as_the_book_s():
    tree = nb06.broken_tree()
    tree.insert("1 2 3 4")
    assert tree.match("1 2 3 4") == 4
    tree.insert("1 2 5 6")
    assert tree.match("1 2 3 4") == tree.match("1 2 5 6") == 0


def test_uses_of_a_pool_add_up_and_keep_the_paper_s_order():
    work = kv_use.sharegpt_paper_workload(60)
    assert sum(spec.prompt for spec in work.specs) / 60 == pytest.approx(kv_use.PROMPT_MEAN, rel=0.01)
    shares = {}
    for kind in ("reserved:max", "reserved:pow2", "reserved:oracle", "paged"):
        report = lab.run(work, lab.Priced(), memory=kind, blocks=400, batching="continuous:256", chunking="whole")
        use = kv_use.pool_use(report)
        assert sum(use.values()) == pytest.approx(1) and min(use.values()) >= 0
        shares[kind] = use["tokens"]
    assert sorted(shares, key=shares.get) == list(shares)
    assert kv_use.pool_use(lab.run(fixed_workload([4], [3]), lab.Priced())) == {}, "nobody ever waited"


def test_a_block_map_says_who_holds_what():
    before, after = block_maps(nb05.samples(20, 6, n=3), lab.Priced(), [0, 1], blocks=8, block_size=16)
    assert before.owners[0] == tuple(sample << 32 for sample in range(3)) and before.free == 6
    assert sum(len(owners) for owners in after.owners) == 6 and after.filled[:1] == (16,)
    assert [name_of(owner) for owner in before.owners[0]] == ["0", "0b", "0c"]
    strips = pools(kv_use.crowd(), lab.Priced(), 20, {"a": {}, "b": dict(memory="reserved:oracle")}, blocks=100)
    assert [strip.title for strip in strips] == ["a", "b"]
    words = draw_blocks.words(strips)
    assert "100" not in words.splitlines()[1] and "·" in words
    assert draw_blocks.draw(strips, 20).svg("a picture").startswith("<svg")
    assert block_map(lab.build_engine(lab.Priced(), blocks=3)).longest_hole == 3


def test_swapping_over_a_link_pays_from_some_block_size_on():
    assert pcie.crossover(1024) == 16
    assert pcie.swap_s(1024, 1) > pcie.recompute_s(1024) > pcie.swap_s(1024, 64)
    assert pcie.swap_s(1024, 16, pcie.LINKS["PCIe 5"]) < pcie.swap_s(1024, 16)
    work = fixed_workload([60] * 4, [40] * 4)
    options = {"blocks": 240, "block_size": 1, "batching": "continuous:4"}
    again, swap = (lab.run(work, pcie.Accelerator(), preemption=name, **options) for name in ("recompute", "swap"))
    assert again.preemptions and swap.preemptions and swap.duration_s > again.duration_s


def test_a_tiny_tree_splits_locks_and_gives_up_leaves():
    tree = TinyTree()
    assert tree.insert("a b c d", keep=True) == 0 and tree.insert("a b x") == 2
    assert tree.match("a b c y") == 3
    assert tree.evict(9) == 1, "only what nobody uses"
    tree.done("a b c d")
    assert tree.evict(9) == 4 and tree.match("a") == 0
    assert "gone" in tiny_tree.lines(tree.frames) and "<title>" in draw_tree.draw(tree.frames).svg("a tree")


def test_parts_in_the_best_order_share_most():
    assert computed_with(nb06.BEST) == nb06.fewest_computed() < computed_with(tuple(PARTS))


def test_depth_first_and_longest_prefix_reach_the_best_of_all_orders():
    batch = families.small_batch()[:5]
    best = max(families.every_order(batch))
    assert families.served(batch, "depth-first") == families.served(batch, "longest-prefix") == best


def test_a_rule_in_the_scheduler_is_the_lab_s_own():
    work, stranger = families.with_stranger(60)
    options = {"prefix_cache": "radix", "batching": "continuous:2", "blocks": 40}
    mine = OrderRule(lambda waiting, now: nb08.aged_order(waiting, now, 0.5))
    waits = [
        families.wait_of(lab.run(work, lab.Priced(step=0.04, token=0.002), ordering=order, **options), stranger)
        for order in (mine, "aged:longest-prefix:0.5s", "longest-prefix")
    ]
    assert waits[0] == waits[1] < waits[2]


def test_found_counts_first_admissions_only():
    work = families.families(48)
    report = lab.run(work, lab.Priced(), prefix_cache="radix", blocks=60, batching="continuous:16")
    assert report.preemptions and families.found(report) < report.cached_tokens / families.prompt_tokens(report)


def test_the_verdict_is_worked_out_from_the_numbers():
    cell = order_grid.Cell(0.5, 10.0, 1.0, 1.0, 2.0, 2.0, 0.0)
    cells = {(name, seats): cell for name in order_grid.ORDERS for seats in (2, 8)}
    cells["longest prefix", 8] = order_grid.Cell(0.9, 40.0, 1.0, 0.5, 9.0, 4.0, 0.0)
    lines = order_grid.verdict(cells)
    assert "both: 4.00×, more than the product 1.00" in lines[1]
    assert "best: longest prefix with 8 seats; within the spread of the seeds: no other" in lines[2]
    assert "9.0 s" in lines[3] and "2.0 s" in lines[3]
