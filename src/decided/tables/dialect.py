"""How a text table is written: its encoding and its separator, told from its beginning."""

import codecs
import csv
import re
from typing import NamedTuple

from decided.errors import InputError

SAMPLE_BYTES = 2**16
DELIMITERS = {"csv": ",", "tsv": "\t"}
_CANDIDATES = ",;\t|"
LATIN = "cp1252"
_ACCENTED = re.compile(rb"[A-Za-z][\xc0-\xff]|[\xc0-\xff][A-Za-z]")
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Dialect(NamedTuple):
    encoding: str
    delimiter: str


def sniff(sample: bytes, kind: str, encoding: str | None, delimiter: str | None) -> Dialect:
    """The encoding and the separator of a table that begins so, except where they are given."""
    encoding = _check_encoding(encoding) if encoding else _guess_encoding(sample)
    text = codecs.getincrementaldecoder(encoding)("replace").decode(sample)
    if delimiter is None:
        delimiter = _guess_delimiter(text) if kind == "csv" else DELIMITERS[kind]
    elif len(delimiter) != 1 or delimiter in '"\r\n':
        raise InputError(f"--delimiter must be one character, not {delimiter!r}")
    return Dialect(encoding, delimiter)


def _check_encoding(name: str) -> str:
    try:
        return codecs.lookup(name).name
    except LookupError:
        raise InputError(f"--encoding {name}: unknown; use utf-8, utf-16, latin-1 or cp1252") from None


def _guess_encoding(sample: bytes) -> str:
    """UTF-8 and UTF-16 can be seen. What is neither, and has letters with accents inside words, is what older
    spreadsheets write; stray bytes in a UTF-8 file are the problem of their row."""
    if sample.startswith(_UTF_16):
        return "utf-16"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        if _ACCENTED.search(sample) and sample.decode(errors="ignore").isascii():
            return LATIN
    return "utf-8-sig"


def _guess_delimiter(text: str) -> str:
    """The separator that cuts the first lines into the same number of cells, more than one; a comma if none does."""
    lines = text.splitlines()[:20]
    found = ","
    most = 1
    for candidate in _CANDIDATES:
        try:
            widths = [len(cells) for cells in csv.reader(lines, delimiter=candidate) if cells]
        except csv.Error:
            continue
        if widths and widths[0] > most and widths.count(widths[0]) * 2 > len(widths):
            found, most = candidate, widths[0]
    return found
