"""Prompts laid out as one packed row, in which questions share the states they are about.

    [state 1][state 2] [question about 1][question about 1][question about 2] [question about a state known before]

A state's tokens see the state up to themselves; a question's tokens see all of their state, and their question up to
themselves. So a state is read once, however many questions there are about it, and not at all when it is known.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from decided.engines.torch.cuda_graphs import fill_up, round_up, round_up_by_doubling
from decided.engines.torch.kv_cache import CachedState, KvCache
from decided.engines.torch.transfer import Ints

_LEAST_STRETCH = 128
_LEAST_EARLIER = 256


_NOTHING: Ints = np.array([], np.int32)


class Prompt(NamedTuple):
    """A question about a state, in tokens: the state with all that stands before it, the rest, and the words behind it
    whose probability is asked. Without words, what is asked is what comes next."""

    key: bytes
    state: Ints
    rest: Ints
    said: Ints = _NOTHING

    @property
    def behind(self) -> Ints:
        """What is read behind the state: of the words, all but the last, which nobody follows."""
        return np.concatenate((self.rest, self.said[:-1])) if len(self.said) > 1 else self.rest

    @property
    def reads(self) -> int:
        """At how many tokens, up to the last, the network's word on the next one is asked."""
        return max(1, len(self.said))


@dataclass
class Sheet:
    """A state in a batch, and where its questions stand."""

    known: CachedState
    start: int | None
    """Where the state stands in the batch; None when it was read before."""
    questions: list[slice] = field(default_factory=list)
    keep: bool = False


@dataclass
class Layout:
    """A batch in numbers. The arrays go to the device; the rest is what the host must know to launch it."""

    sheets: list[Sheet]
    tokens: int
    earlier: int
    """Tokens of the states that were read before."""
    lengths: list[int]
    """Of all states and questions, each as a sequence."""
    longest: int
    most_queries: int
    """The most tokens that the questions of one sheet have."""
    most_keys: int
    ids: Ints
    positions: Ints
    picks: Ints
    """The tokens at which the network is asked for the next one, by prompt."""
    targets: Ints
    """For each of them, the token that comes next, if words are asked for."""
    own: Ints
    """Where states and questions begin."""
    queries: Ints
    keys: Ints
    """Where each sheet's questions begin, and where its state does. States read before stand behind the batch: a
    stretch without questions leaps to them."""

    @property
    def arrays(self) -> tuple[Ints, ...]:
        return (self.ids, self.positions, self.picks, self.targets, self.own, self.queries, self.keys)

    @property
    def keeps(self) -> bool:
        return any(sheet.keep for sheet in self.sheets)

    @property
    def shape(self) -> tuple[int, ...]:
        """All that decides which launches the batch takes."""
        host = (self.longest, self.most_queries, self.most_keys, self.earlier, self.keeps)
        return (*host, *(len(array) for array in self.arrays))

    def rounded_up(self) -> "Layout":
        """The same batch in a shape that comes more often."""
        tokens = round_up(self.tokens)
        queries, keys = stretches(self.sheets, tokens)
        count = round_up_by_doubling(max(len(self.picks), len(self.own) - 1, len(queries) - 1))
        most = round_up_by_doubling(max(self.longest, self.most_queries, self.most_keys), _LEAST_STRETCH)
        return replace(
            self, tokens=tokens, earlier=round_up_by_doubling(self.earlier, _LEAST_EARLIER),
            longest=most, most_queries=most, most_keys=most,
            ids=fill_up(self.ids, tokens), positions=fill_up(self.positions, tokens),
            picks=fill_up(self.picks, count), targets=fill_up(self.targets, count),
            own=fill_up(self.own, count + 1), queries=fill_up(queries, count + 1), keys=fill_up(keys, count + 1),
        )  # fmt: skip


def lay_out(prompts: Sequence[Prompt], states: KvCache) -> Layout:
    """States that are not known are marked as kept, where there is room: whoever runs the batch must keep them."""
    behind = [prompt.behind for prompt in prompts]
    sheets, read, order = _sheets(prompts, [len(ids) for ids in behind], states)
    rests = [behind[number] for number in order]
    before = [len(prompts[number].state) for number in order]
    lengths = [len(ids) for ids in (*read, *rests)]
    own = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=own[1:])
    tokens = int(own[-1])
    queries, keys = stretches(sheets, tokens)
    ends = own[len(read) + 1 :][np.argsort(order)]
    return Layout(
        sheets, tokens,
        earlier=sum(sheet.known.length for sheet in sheets if sheet.start is None),
        lengths=lengths, longest=max(lengths),
        most_queries=int(np.diff(queries).max()),
        most_keys=max(sheet.known.length for sheet in sheets),
        ids=np.concatenate((*read, *rests)),
        positions=np.concatenate(
            [*(np.arange(len(ids), dtype=np.int32) for ids in read),
             *(np.arange(start, start + len(ids), dtype=np.int32) for start, ids in zip(before, rests, strict=True))]
        ),
        picks=pick_rows(prompts, ends), targets=target_rows(prompts),
        own=own, queries=queries, keys=keys,
    )  # fmt: skip


def pick_rows(prompts: Sequence[Prompt], ends: Sequence[int] | Ints) -> Ints:
    """The places before each prompt's end at which it is asked what comes next."""
    places = [np.arange(end - prompt.reads, end, dtype=np.int32) for prompt, end in zip(prompts, ends, strict=True)]
    return np.concatenate(places)


def target_rows(prompts: Sequence[Prompt]) -> Ints:
    zero = np.zeros(1, np.int32)
    return np.concatenate([prompt.said if len(prompt.said) else zero for prompt in prompts])


def _sheets(
    prompts: Sequence[Prompt], lengths: Sequence[int], states: KvCache
) -> tuple[list[Sheet], list[Ints], list[int]]:
    """The sheets, the states that must be read, and the prompts' numbers in the order in which they stand."""
    of_states: dict[bytes, list[int]] = {}
    for number, prompt in enumerate(prompts):
        of_states.setdefault(prompt.key, []).append(number)
    found = {key: states.find(key) for key in of_states}
    # New states first, in the order of their sheets: so their keys stand where the sheets' stretches expect them.
    keys = sorted(of_states, key=lambda key: found[key] is not None)
    sheets, read, start = [], [], 0
    for key in keys:
        ids = prompts[of_states[key][0]].state
        known = found[key]
        if known is not None:
            sheets.append(Sheet(known, None))
            continue
        known = CachedState(len(ids))
        sheets.append(Sheet(known, start, keep=states.keep(key, known)))
        read.append(ids)
        start += len(ids)
    for key, sheet in zip(keys, sheets, strict=True):
        for number in of_states[key]:
            sheet.questions.append(slice(start, start := start + lengths[number]))
    return sheets, read, [number for key in keys for number in of_states[key]]


def stretches(sheets: Sequence[Sheet], tokens: int) -> tuple[Ints, Ints]:
    """Where each sheet's questions begin in a batch of so many tokens, and where its state's keys do."""
    queries, keys = [sum(sheet.known.length for sheet in sheets if sheet.start is not None)], [0]
    for sheet in sheets:
        if sheet.start is None and keys[-1] < tokens:
            queries.append(queries[-1])
            keys.append(tokens)
        queries.append(queries[-1] + sum(part.stop - part.start for part in sheet.questions))
        keys.append(keys[-1] + sheet.known.length)
    return np.array(queries, np.int32), np.array(keys, np.int32)
