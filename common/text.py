"""What text may enter the database or a prompt: cleaning, token counts, and JSON that PostgreSQL accepts."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
import unicodedata
from typing import Any

MAX_JSON_DEPTH = 64

_CONTROL = {c: None for c in range(32) if c not in (9, 10, 13)} | {127: None}
# Zero-width characters, directional overrides, the BOM and the deprecated tag characters hide text from a reader
# but not from a model.
_INVISIBLE = re.compile(
    "[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\U000e0000-\U000e007f]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")


def clean_text(text: str) -> str:
    """The same text without what PostgreSQL or pg8000 cannot store: NUL and other controls go, lone surrogates become U+FFFD.

    A lone surrogate would desynchronise a pg8000 connection; `common.db` guards against it a second time.
    """
    return _SURROGATE.sub("\ufffd", text).translate(_CONTROL)


# A fence is `<data …>` to `</data>`; what could open or close one is defused, not removed, so that nothing left over can join into one.
_FENCE = re.compile(r"<(?=[\s/]*data)", re.IGNORECASE)
_ROLE = re.compile(r"^(\s*)(human|assistant|system|user|tool)(\s*):", re.IGNORECASE | re.MULTILINE)
_SPECIAL_TOKEN = re.compile(r"<\|[^|>\n]{0,40}\|>|\[/?INST\]|<</?SYS>>", re.IGNORECASE)


def sanitise(text: str, limit: int = 20_000) -> str:
    """`text` as it may stand in a later prompt: nothing invisible, no fence, role or special-token marker that could end its
    quotation, at most `limit` characters. Sanitising twice changes nothing."""
    visible = _INVISIBLE.sub("", clean_text(unicodedata.normalize("NFC", text)))
    while (
        shorter := _SPECIAL_TOKEN.sub("", visible)
    ) != visible:  # what is removed may have stood between halves of another
        visible = shorter
    quoted = _ROLE.sub(r"\1\2\3" + "\u2236", _FENCE.sub("\u2039", visible))
    return quoted if len(quoted) <= limit else quoted[: limit - 1].rstrip() + "…"


def fenced(name: str, text: str) -> str:
    """`text`, sanitised, between the marks that the base prompt declares to be data."""
    return f'<data name="{name}">\n{sanitise(text)}\n</data>'


def one_line(text: str, limit: int) -> str:
    """`text` as at most `limit` characters on one line, invisible characters dropped, cut with an ellipsis."""
    flat = " ".join(_INVISIBLE.sub("", clean_text(unicodedata.normalize("NFC", text))).split())
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"


def plain_words(text: str) -> str:
    """The words of `text` in lower case, a space between two of them: equal for texts that differ in spacing and punctuation alone."""
    return " ".join(re.findall(r"\w+", sanitise(text).casefold())) or text


def clean_json(value: Any, *, depth: int = 0) -> Any:
    """A copy of `value` that `jsonb` takes: text cleaned, NaN and infinities as null, keys as text, what is nested deeper
    than `MAX_JSON_DEPTH` replaced by a visible note, and anything that is no JSON written as its text."""
    if depth > MAX_JSON_DEPTH:
        return "[nested too deeply]"
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(str(k)): clean_json(v, depth=depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [clean_json(v, depth=depth + 1) for v in value]
    return clean_text(str(value))


def to_json(value: Any) -> str:
    """`value` (already clean) as compact JSON; raises ValueError for NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str)


def canonical_hash(value: Any) -> str:
    """SHA-256, in hex, of `value` as JSON with sorted keys: equal for equal values, whatever the order of keys."""
    canonical = json.dumps(
        clean_json(value), ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(canonical.encode()).hexdigest()


@functools.cache
def _encoder() -> Any:
    try:
        import rs_bpe.bpe as bpe
    except ImportError:  # no wheel for this platform: fall back to the byte rule
        return None
    return bpe.openai.cl100k_base()


def plain_tokens(text: str) -> int:
    """How many tokens a common vocabulary (cl100k) makes of `text`; half its UTF-8 bytes where that is not installed."""
    encoder = _encoder()
    if encoder is None:
        return math.ceil(len(text.encode("utf-8", "replace")) / 2)
    return int(encoder.count(clean_text(text)))


def count_tokens(text: str) -> int:
    """A careful estimate of the tokens a provider will charge for `text`: the plain count and 30 %, for vocabularies differ."""
    return math.ceil(plain_tokens(text) * 1.3)
