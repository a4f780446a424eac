"""The embedded network's shape in plain PyTorch float32, asked in two ways. A child process of engine.py.

`once` reads the state alone and lets the questions read its keys and values, as the engine does. `pairs` joins every
question to the whole state and pads the pairs to one length, as servers of cross-encoders do. The weights are random:
they do not change the time. One line of JSON in, {"way", "state", "questions"} in tokens; one line out, CPU seconds.
"""

import json
import sys
from time import process_time

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

HIDDEN, INNER, HEADS, LAYERS, WORDS, PLACES = 384, 1536, 12, 12, 30522, 512


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, INNER), nn.Linear(INNER, HIDDEN)
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)

    def forward(self, x: Tensor, seen: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, HEADS, HIDDEN // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        own = (k, v)
        if seen is not None:
            k, v = (torch.cat([s.expand(batch, -1, -1, -1), o], 2) for s, o in zip(seen, own, strict=True))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, HIDDEN)
        x = self.norm1(x + self.out(y))
        return self.norm2(x + self.down(F.gelu(self.up(x)))), own


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, HIDDEN), nn.Embedding(PLACES, HIDDEN)
        self.norm, self.head = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, 1)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, ids: Tensor, seen: list[tuple[Tensor, Tensor]] | None) -> list[tuple[Tensor, Tensor]]:
        x = self.norm(self.words(ids) + self.places(torch.arange(ids.shape[1]) % PLACES))
        kept = []
        for i, layer in enumerate(self.layers):
            x, own = layer(x, seen[i] if seen else None)
            kept.append(own)
        self.head(x[:, 0])
        return kept


def ask(network: Network, way: str, state: int, questions: list[int]) -> None:
    longest = max(questions)
    if way == "pairs":
        network(torch.randint(WORDS, (len(questions), state + longest)), None)
        return
    kept = network(torch.randint(WORDS, (1, state)), None)
    for length in sorted(set(questions)):  # questions of one length together: no padding
        network(torch.randint(WORDS, (questions.count(length), length)), kept)


def main() -> None:
    torch.set_num_threads(1)
    network = Network().eval()
    with torch.inference_mode():
        for line in sys.stdin:
            job = json.loads(line)
            began = process_time()
            ask(network, job["way"], job["state"], job["questions"])
            print(process_time() - began, flush=True)


if __name__ == "__main__":
    main()
