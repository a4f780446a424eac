"""Text to token ids, with what a client wrote always read as plain text: `[MASK]` in a state is six characters."""

from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, pre_tokenizers

from decided.engines.api import Cut
from decided.engines.checkpoint import Checkpoint
from decided.engines.prompts import MAX_CHARACTERS_PER_TOKEN, tokens
from decided.errors import ModelError

_PART = 32  # characters


class Vocabulary:
    """A fast tokenizer without special tokens, padding or truncation."""

    def __init__(self, tokenizer: Tokenizer, special: dict[str, str]) -> None:
        self._tokenizer = split_long_words(tokenizer)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True
        self.special = special

    def encode(self, text: str) -> list[int]:
        # Of the tokenizer's functions, those for batches alone let other threads run meanwhile.
        ids: list[int] = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids

    def shorten(self, text: str, part: str, limit: int) -> tuple[str, int, tuple[Cut, ...]]:
        """The first `limit` tokens of a text as text, how many they are, and the cut: for libraries that read text."""
        ids, cuts = tokens(self, text, part, limit)
        if not cuts:
            return text, len(ids), cuts
        room = len(text) if not cuts[0].estimated else limit * MAX_CHARACTERS_PER_TOKEN
        end = self._tokenizer.encode(text[:room], add_special_tokens=False).offsets[limit - 1][1] if limit else 0
        return text[:end], limit, cuts

    def id_of(self, role: str) -> int:
        """The id of a special token, by its role: `mask_token`, `cls_token`, `sep_token`."""
        found = self._tokenizer.token_to_id(self.special.get(role, ""))
        if found is None:
            raise ModelError(f"the tokenizer has no {role}")
        return int(found)


def split_long_words(tokenizer: Tokenizer) -> Tokenizer:
    """To word pieces a word of more than 100 characters is one unknown token, whatever it says. Here it is read in
    parts, of which all but the last are short: what finding the pieces of a word takes grows with its square."""
    longest: int = getattr(tokenizer.model, "max_input_chars_per_word", 0)
    if longest > _PART:
        more = longest + 1 - _PART
        parts = pre_tokenizers.Split(Regex(f".{{{_PART}}}(?=.{{{more}}})"), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([each for each in (tokenizer.pre_tokenizer, parts) if each])
    return tokenizer


def read_vocabulary(checkpoint: Checkpoint, subfolder: str = "") -> Vocabulary:
    folder = checkpoint.folder / subfolder
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelError(f"the model {checkpoint.name!r} has no {Path(subfolder, path.name)}")
    special: dict[str, str] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            special |= _special(checkpoint.json(str(Path(subfolder, name))))
    return Vocabulary(Tokenizer.from_file(str(path)), special)


def vocabulary_of(tokenizer: Any) -> Vocabulary:
    """That of a tokenizer of transformers, which itself stays as it is."""
    return Vocabulary(Tokenizer.from_str(tokenizer.backend_tokenizer.to_str()), {})


def _special(config: dict[str, Any]) -> dict[str, str]:
    """Roles of special tokens: written as text, or as an object with the text in `content`."""
    found = {}
    for role, token in config.items():
        text = token.get("content") if isinstance(token, dict) else token
        if role.endswith("_token") and isinstance(text, str):
            found[role] = text
    return found
