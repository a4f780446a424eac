"""The network that is trained: who sees whom, what is drawn, what is learnt."""

from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

import torch

from training.architecture import ARCHITECTURES, POSITIONS, Architecture
from training.archive import TRAIN, Archive
from training.base import by_distance
from training.batches import BLOCK, FRESH_WEIGHT, GROUPS, Draw, Packer, Shape, drawn, shares
from training.evaluate import answer, means
from training.network import Kernels, Network, log_softmax, pooled, restored, visible, who_sees
from training.train import agrees, averaged, groups, losses, pace, said, targets, trained
from training.weights import save

pytestmark = pytest.mark.torch

TINY = Architecture("tiny", 32, 64, 4, 2, 1e-5, relative=True, vocabulary=200)
SHAPE = Shape.of(512)
CPU = torch.device("cpu")


def archive(rows: int = 60, seed: int = 1) -> Archive:
    """Random rows of three tasks and all kinds, some of them longer than a block."""
    rng = np.random.default_rng(seed)
    options = rng.integers(2, 9, rows)
    kind = rng.integers(0, 3, rows)
    options[kind == 2] = 2
    lengths = np.concatenate([[rng.integers(0, 150), rng.integers(1, 12), *rng.integers(0, 8, n)] for n in options])
    table = np.stack([options, rng.integers(0, options), kind, rng.integers(0, 3, rows), np.zeros(rows)], 1)
    tokens = rng.integers(110, 200, lengths.sum()).astype(np.uint16)
    links = np.arange(len(lengths), dtype=np.int32)
    return Archive.of(tokens, lengths.astype(np.int64), links, table.astype(np.int64), ["everyday_a/x", "story/b", "c"])


def in_threes(rows: Archive) -> Archive:
    """The same rows, each three of them about one state."""
    links = rows.links.copy()
    every = np.arange(len(rows.first))
    links[rows.first] = rows.links[rows.first[every - every % 3]]
    return replace(rows, links=links)


ROWS = archive()
PACKER = Packer(ROWS, SHAPE)
THREES = Packer(in_threes(ROWS), SHAPE)


def tiny(seed: int = 1) -> Network:
    torch.manual_seed(seed)
    net = Network(TINY)
    net.eval()
    with torch.no_grad():
        for p in net.parameters():
            if p.dim() > 1:
                p.normal_(0, 0.3)
    return net


def test_batches_hold_whole_rows_and_every_token_is_counted() -> None:
    groups = list(PACKER.groups(Draw(r, None) for r in range(60)))
    assert [draw.row for group in groups for draw in group] == list(range(60))
    for group in groups:
        batch = PACKER.pack(group)
        assert int(batch["used"]) == sum(PACKER.cost_of(draw) for draw in group) <= SHAPE.tokens
        assert batch["row_index"].tolist()[: len(group)] == [draw.row for draw in group]


@pytest.mark.parametrize("packer", [PACKER, THREES], ids=["alone", "in threes"])
def test_blocks_that_are_listed_are_the_ones_in_which_something_is_seen(packer: Packer) -> None:
    every = torch.arange(SHAPE.tokens)
    for group in packer.groups(Draw(r, None) for r in range(60)):
        batch = packer.pack(group)
        seen = visible(*who_sees(batch), every[:, None], every[None])
        squares = seen.view(-1, BLOCK, SHAPE.tokens // BLOCK, BLOCK)
        assert torch.equal(squares.any(3).any(1), batch["near"])
        assert not (batch["full"] & ~squares.all(3).all(1)).any()
        larger = seen.view(-1, 2 * BLOCK, SHAPE.tokens // BLOCK // 2, 2 * BLOCK)
        assert torch.equal(larger.any(3).any(1), pooled(batch["near"], 2, whole=False))
        assert not (pooled(batch["full"], 2, whole=True) & ~larger.all(3).all(1)).any()


def test_who_sees_whom() -> None:
    draw = Draw(int(np.argmax(ROWS.options)), None)
    batch = PACKER.pack([draw])
    links = ROWS.links[ROWS.first[draw.row] :][: 2 + ROWS.options[draw.row]]
    state, lead, first, second = (int(n) for n in ROWS.lengths[links[:4]] + [2, 2, 1, 1])
    starts = np.cumsum([0, state, lead, first, second]).tolist()

    def sees(q: int, k: int) -> bool:
        return bool(visible(*who_sees(batch), torch.tensor(q), torch.tensor(k)))

    _, instructions, one, two, _ = starts
    assert sees(0, instructions - 1)
    assert not sees(0, instructions)
    assert sees(instructions, 0)
    assert not sees(instructions, one)
    assert all(sees(one, k) for k in (0, instructions, one, two))
    assert sees(two, one)
    if first > 1:
        assert not sees(two, one + 1)
        assert not sees(one + 1, two)


def test_company_and_the_order_of_options_do_not_matter() -> None:
    net, kernels = tiny(), Kernels(CPU, SHAPE)
    rows = [int(r) for r in np.flatnonzero(ROWS.kind == 0)[:6]]
    together = answer(net, kernels, PACKER, rows)
    for row, found in zip(rows, together, strict=True):
        alone = answer(net, kernels, PACKER, [row])[0]
        assert np.abs(alone.logits - found.logits).max() < 1e-4
        order = np.random.default_rng(row).permutation(ROWS.options[row])
        batch = kernels.load(PACKER.pack([Draw(row, order)]))
        with torch.no_grad():
            turned = net(batch, kernels)[: len(order)].numpy()
        assert np.abs(turned - found.logits[order]).max() < 1e-4


def test_rows_about_one_state_share_it_and_answer_as_they_do_alone() -> None:
    net, kernels = tiny(), Kernels(CPU, SHAPE)
    groups = list(THREES.groups(Draw(r, None) for r in range(60)))
    assert [draw.row for group in groups for draw in group] == list(range(60))
    for group in groups:
        batch = THREES.pack(group)
        read = [THREES.state_cost[d.row] for d, before in pairwise(group[::-1]) if d.row // 3 == before.row // 3]
        assert int(batch["used"]) == sum(THREES.cost_of(draw) for draw in group) - sum(read) <= SHAPE.tokens
    together = answer(net, kernels, THREES, list(range(60)))
    for row, found in enumerate(together):
        assert np.abs(answer(net, kernels, THREES, [row])[0].logits - found.logits).max() < 1e-4


def test_draws_bring_others_about_their_state_along() -> None:
    draws = list(islice(drawn(THREES.archive, 1, together=2), 200))
    for first, second in zip(draws[::2], draws[1::2], strict=True):
        assert first.row // 3 == second.row // 3
        assert first.row != second.row
    strangers = list(islice(drawn(THREES.archive, 1, strange=1.0, together=3), 30))
    assert all(a.stranger == b.stranger for a, b in zip(strangers[::3], strangers[2::3], strict=True))


def test_the_attention_agrees_with_the_rule() -> None:
    kernels = Kernels(CPU, SHAPE)
    kernels.load(PACKER.pack(next(PACKER.groups(Draw(r, None) for r in range(60)))))
    assert agrees(tiny(), kernels)


def test_far_positions_have_the_bias_of_the_last_bucket() -> None:
    table = by_distance(np.arange(64, dtype=np.float32).reshape(32, 2))
    middle = POSITIONS - 1
    assert table.shape == (2, 2 * POSITIONS - 1)
    assert table[0, [middle, middle + 1, middle + 7, middle + 128, -1]].tolist() == [0, 2, 14, 30, 30]
    assert table[1, [middle - 1, middle - 7, middle - 128, 0]].tolist() == [35, 47, 63, 63]


def test_draws_keep_the_shares_and_come_back_only_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.batches.CHUNK", 50)
    rows, share = shares(ROWS)
    assert np.array_equal(rows, ROWS.rows(TRAIN))
    by_hand = np.array([ROWS.tasks[t].startswith("everyday_") for t in ROWS.task])
    here = sum(GROUPS[beginning] for beginning in ("everyday_", "story/", ""))
    assert share[by_hand].sum() == pytest.approx(GROUPS["everyday_"] / here)
    assert sum(GROUPS.values()) == pytest.approx(1)
    count = np.bincount([draw.row for draw in islice(drawn(ROWS, 1), 2000)], minlength=60)
    assert np.abs(count - share * 2000).max() <= 3
    workers = [[d.row for d in islice(drawn(ROWS, 1, w, 2), 500)] for w in range(2)]
    assert np.abs(np.bincount(np.concatenate(workers), minlength=60) - share * 1000).max() <= 4


def test_files_that_the_start_has_not_seen_are_drawn_more_often() -> None:
    tasks = [f"everyday_{name}/noul" for name in ("old", "new", "newer")]
    rows = replace(ROWS, tasks=tasks, kind=np.full_like(ROWS.kind, 2))
    share = shares(rows, ["new"])[1]
    of_old, of_new, of_newer = (share[rows.task == t].mean() for t in range(3))
    assert of_new / of_old == pytest.approx(FRESH_WEIGHT)
    assert of_newer == pytest.approx(of_old)


def test_a_cut_list_keeps_the_right_option() -> None:
    for draw in islice(drawn(ROWS, 2), 400):
        if draw.keep is not None:
            assert ROWS.gold[draw.row] in draw.keep
            assert 2 <= len(draw.keep) < ROWS.options[draw.row]


def test_some_questions_are_asked_about_strangers_and_cost_what_they_take() -> None:
    draws = list(islice(drawn(ROWS, 3, strange=0.5), 400))
    strange = [draw for draw in draws if draw.stranger is not None]
    assert 150 < len(strange) < 250
    for draw in strange[:40]:
        batch = PACKER.pack([draw])
        assert int(batch["used"]) == PACKER.cost_of(draw)
        assert batch["row_strange"].tolist()[0] == 1
        assert draw.stranger is not None
        state = ROWS.links[ROWS.first[draw.stranger]]
        first = ROWS.tokens[ROWS.starts[state] : ROWS.starts[state] + ROWS.lengths[state]][:20]
        assert batch["ids"][1 : 1 + len(first)].tolist() == first.tolist()


def test_teachers_say_the_mean_of_their_log_probabilities() -> None:
    kernels = Kernels(CPU, SHAPE)
    teachers = [Network(TINY).eval(), Network(replace(TINY, hidden=48, inner=96, relative=False)).eval()]
    batch = kernels.load(PACKER.pack([Draw(3, None)]))
    taught, options = said(teachers, batch, kernels), int(batch["row_options"][0])
    assert taught is not None
    assert said([], batch, kernels) is None
    with torch.no_grad():
        each = [teacher(batch, kernels)[:options].log_softmax(0) for teacher in teachers]
    torch.testing.assert_close(taught[:options], torch.stack(each).mean(0).log_softmax(0))


@pytest.mark.parametrize(
    ("stranger", "clean", "right", "trusted"),
    [
        (None, False, True, 0.25),
        (None, False, False, 0.25),
        (None, True, True, 0.125),
        (None, True, False, 0.0),  # what is called right there is right, whatever the teacher says
        (5, False, False, 1.0),  # no label
        (5, True, False, 1.0),
    ],
)
def test_how_far_a_teacher_is_trusted(stranger: int | None, clean: bool, right: bool, trusted: float) -> None:
    batch = Kernels(CPU, SHAPE).load(PACKER.pack([Draw(3, None, stranger)]))
    batch["row_clean"] = torch.full_like(batch["row_clean"], clean)
    wanted, options = targets(batch, (0.0, 0.0), (0.0, 0.0)), int(batch["row_options"][0])
    gold = int(wanted[:options].argmax())
    thought = torch.zeros(SHAPE.markers)
    thought[gold if right else (gold + 1) % options] = 1.0
    taught = log_softmax(thought, batch)
    logits = torch.linspace(-2, 3, SHAPE.markers)
    loss, plain = losses(logits, batch, wanted, 0.0, taught, (0.25, 0.125))
    mixed = (1 - trusted) * wanted[:options] + trusted * taught.exp()[:options]
    expected = -(mixed * logits[:options].log_softmax(0)).sum()
    assert float(loss) == pytest.approx(float(expected), abs=1e-5)
    assert (float(plain) == 0) == (trusted == 1.0)


def test_targets_are_probabilities_that_lean_to_the_neighbours_of_a_level() -> None:
    batch = PACKER.pack(next(PACKER.groups(Draw(r, None) for r in range(60))))
    wanted = targets(batch, (0.1, 0.02), (0.3, 0.1))
    for i, row in enumerate(batch["row_index"].tolist()):
        if row < 0:
            break
        at, size = int(batch["row_first"][i]), int(batch["row_options"][i])
        mine, gold = wanted[at : at + size], int(batch["row_gold"][i]) - at
        assert float(mine.sum()) == pytest.approx(1, abs=1e-5)
        assert int(mine.argmax()) == gold
        if ROWS.kind[row] == 1 and 0 < gold < size - 2:
            assert mine[gold + 1] > mine[gold + 2]
            assert mine[gold + 1] == pytest.approx(float(mine[gold - 1]))


def test_a_near_miss_costs_less_than_a_far_one() -> None:
    score = next(r for r in range(60) if ROWS.kind[r] == 1 and ROWS.options[r] > 3 and ROWS.gold[r] == 0)
    batch = PACKER.pack([Draw(score, None)])
    wanted = targets(batch, (0.1, 0.02), (0.3, 0.1))

    def cost(level: int) -> float:
        logits = torch.zeros(SHAPE.markers)
        logits[level] = 4
        return float(losses(logits, batch, wanted, 0.5)[0])

    assert cost(0) < cost(1) < cost(2)


def test_the_rate_rises_and_falls_to_nothing() -> None:
    assert pace(0, 0.0, 10) == pytest.approx(0.1)
    assert pace(20, 0.5, 10) == pytest.approx(0.5)
    assert pace(20, 1.0, 10) == 0.0


def test_a_few_steps_lower_the_loss_and_the_weights_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, kernels = tiny(), Kernels(CPU, SHAPE)
    batch = kernels.load(PACKER.pack(next(PACKER.groups(Draw(r, None) for r in range(60)))))
    optimiser = torch.optim.AdamW(net.parameters(), 3e-3)
    wanted, seen = targets(batch, (0.1, 0.02), (0.3, 0.1)), []
    for _ in range(12):
        loss, plain = losses(net(batch, kernels), batch, wanted, 0.5)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        seen.append(float(plain))
    assert seen[-1] < seen[0]
    monkeypatch.setitem(ARCHITECTURES, "tiny", TINY)
    save(tmp_path / "w.npz", "tiny", averaged(net, [p.detach() for p in net.parameters()]))
    again = restored(tmp_path / "w.npz").eval()
    with torch.no_grad():
        ours, theirs = (log_softmax(n(batch, kernels), batch)[:4] for n in (net, again))
    assert torch.allclose(ours, theirs, atol=0.05)


def test_what_does_not_learn_is_kept_as_it_is() -> None:
    net = tiny()
    net.word.requires_grad_(False)
    assert len(trained(net)) == len(list(net.parameters())) - 1
    moved = {id(p) for group in groups(net, 1e-3, 0.95) for p in group["params"]}  # type: ignore[attr-defined]
    assert moved == {id(p) for p in trained(net).values()}
    kept = averaged(net, [torch.zeros_like(p) for p in trained(net).values()])
    assert kept["word"].tolist() == net.word.half().tolist()
    assert not any(kept[name].any() for name in trained(net))


def test_means_of_a_run_and_its_start_are_judged_by_their_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ARCHITECTURES, "tiny", TINY)
    start, end = tmp_path / "start.npz", tmp_path / "end.npz"
    for path, value in ((start, 0.0), (end, 1.0)):
        save(path, "tiny", {name: np.full(p.shape, value) for name, p in tiny().state_dict().items()})
    found = {name: net.word.detach()[0, 0].item() for name, net in means(start, end, [0.0, 0.25, 1.0])}
    assert found == {"-0": 0.0, "-0.25": 0.25, "-1": 1.0}
    [(name, alone)] = means(None, end, [0.5])
    assert (name, alone.word.detach()[0, 0].item()) == ("", 1.0)
