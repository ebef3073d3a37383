"""What text may enter the database or a prompt: cleaning, token counts, and JSON that PostgreSQL accepts."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
import secrets
import unicodedata
from collections.abc import Callable
from typing import Any, TypeVar

MAX_JSON_DEPTH = 64
T = TypeVar("T")


def _by_digest(answer: Callable[[str], T]) -> Callable[[str], T]:
    """`answer`, which is asked of the same texts turn after turn, with its answers kept. Of a text only a digest is kept, by a key of this
    process's own: nobody's words stay in memory when they have been deleted."""
    key, known, most = secrets.token_bytes(32), dict[bytes, T](), 20_000

    @functools.wraps(answer)
    def ask(text: str) -> T:
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=key, digest_size=16).digest()
        found = known.get(digest)
        if found is None:
            found = answer(text)
            if len(known) >= most:
                known.clear()
            known[digest] = found
        return found

    return ask


_CONTROL = {c: None for c in range(32) if c not in (9, 10, 13)} | {127: None}
# Zero-width characters, fillers, directional overrides, the BOM, the deprecated tag characters and variation selectors (but the one that
# emoji need) hide text from a reader but not from a model.
_HIDDEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f"
    "\u3164\ufe00-\ufe0e\ufeff\uffa0\U000e0000-\U000e007f\U000e0100-\U000e01ef"
)
_INVISIBLE = re.compile(f"[{_HIDDEN}]")
_SPACES = "\u0000-\u0020\u007f-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
# One character that a reader sees: for Python, and as a pattern of JSON Schema.
VISIBLE = f"[^{_SPACES}{_HIDDEN}]"
_SURROGATE = re.compile("[\ud800-\udfff]")


def clean_text(text: str) -> str:
    """The same text without what PostgreSQL or pg8000 cannot store: NUL and other controls go, lone surrogates become U+FFFD.

    A lone surrogate would desynchronise a pg8000 connection; `common.db` guards against it a second time.
    """
    if text.isprintable():
        return text  # as most are; none of these is
    whole = text if text.isascii() else _SURROGATE.sub("\ufffd", text)
    return whole.translate(_CONTROL)


def is_blank(text: str) -> bool:
    """Whether a reader would see nothing of `text`: spaces, controls and hidden characters alone."""
    return re.search(VISIBLE, text) is None


# A fence is `<data …>` to `</data>`; what could open or close one is defused, not removed, so that nothing left over can join into one.
_FENCE = re.compile(r"[<＜﹤](?=[\s/]*data)", re.IGNORECASE)
_ROLE = re.compile(r"^(\s*)(human|assistant|system|user|tool)(\s*):", re.IGNORECASE | re.MULTILINE)
_SPECIAL_TOKEN = re.compile(r"<\|[^|>\n]{0,40}\|>|\[/?INST\]|<</?SYS>>", re.IGNORECASE)


def sanitise(text: str, limit: int = 20_000) -> str:
    """`text` as it may stand in a later prompt: nothing invisible, no fence, role or special-token marker that could end its
    quotation, secrets masked, at most `limit` characters. Sanitising twice changes nothing."""
    quoted = text if _is_sane(text) else _sanitised(text)
    return quoted if len(quoted) <= limit else quoted[: limit - 1].rstrip() + "…"


@_by_digest
def _is_sane(text: str) -> bool:
    return _sanitised(text) == text


def _sanitised(text: str) -> str:
    visible = _visible(text)
    # What is removed or masked may have stood between halves of another.
    while (safer := _SPECIAL_TOKEN.sub("", mask_secrets(visible))) != visible:
        visible = safer
    return _ROLE.sub(r"\1\2\3" + "\u2236", _FENCE.sub("\u2039", visible))


def _visible(text: str) -> str:
    """`text` in its composed form without what a reader does not see."""
    if text.isascii():
        return clean_text(text)
    return _INVISIBLE.sub("", clean_text(unicodedata.normalize("NFC", text)))


# Keys that say by their shape whose they are. High entropy alone is no sign: ids of messages, members and payments look like it too.
_KEYS = re.compile(
    r"""\b(?:
        sk-[\w-]{20,} | (?:sk|rk)_(?:live|test)_\w{16,} | whsec_[\w+/=-]{20,}        # model vendors; Stripe
      | A(?:KIA|SIA)[A-Z0-9]{16}\b | AIza[\w-]{35} | ya29\.[\w-]{20,}               # Amazon, Google
      | gh[pousr]_\w{30,} | github_pat_\w{30,} | glpat-[\w-]{20,}                   # GitHub, GitLab
      | xox[abeoprs]-[\w-]{10,} | SG\.[\w-]{16,}\.[\w-]{16,} | (?:npm|hf)_\w{30,}  # Slack, SendGrid, npm, Hugging Face
      | eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}                                      # a signed token
    )""",
    re.VERBOSE | re.ASCII,
)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL
)
# What follows a name of secrets, and is no plain word: "password: required" stays.
_NAMED = re.compile(
    r"""(\bbearer\s+ | ://[^\s:/@]{0,64}: (?=[^\s/@]+@)
       | \b(?:password|passwort|passwd|pwd|contraseña|mot\ de\ passe|senha|secret|api[_ -]?key|access[_ -]?token|auth[_ -]?token)["']?
         \s{0,3}[:=]\s{0,3}["']?)
       (?=[^\s"'\]]{0,80}[\d!#$%&*+?^~])([^\s"'<>\[\],;@]{6,})""",
    re.IGNORECASE | re.VERBOSE,
)
# The same names in a text without case: quickly looked for, and most texts have none.
_NAME = re.compile(
    "bearer|://|passwor[dt]|passwd|pwd|contraseña|mot de passe|senha|secret|api[_ -]?key|access[_ -]?token|auth[_ -]?token"
)
# Thirteen to nineteen digits as cards write them, in one piece or in their groups. It begins with a digit, not with what must not be
# before it, for that is fast to look for.
_CARD = re.compile(
    r"\d(?<![\d.,]\d)(?:\d{12,18}|\d{3}([ \u00a0-])\d{4}\1\d{4}\1\d{4}(?:\1\d{3})?|\d{3}[ \u00a0-]\d{6}[ \u00a0-]\d{4,5})(?![\d])"
)
_ISSUED = re.compile(r"4(?:.{15}|.{18})|(?:5[1-5]|2[2-7]|6.).{14}|3[47].{13}|3[068].{12}|6.{15,18}")
SECRET_MARK, CARD_MARK = "[secret removed]", "[card number removed]"


def mask_secrets(text: str) -> str:
    """`text` with marks in the place of keys, tokens, passwords that are called so, and card numbers. Other long numbers stay."""
    for pattern in (_PRIVATE_KEY, _KEYS):
        text = pattern.sub(SECRET_MARK, text)
    if _NAME.search(text.casefold()):
        text = _NAMED.sub(lambda found: found[1] + SECRET_MARK, text)
    return _CARD.sub(lambda found: CARD_MARK if _is_card(found[0]) else found[0], text)


def _is_card(written: str) -> bool:
    """Whether these digits begin and are as many as an issuer's, and their check digit (Luhn) is right."""
    digits = [int(c) for c in written if c.isdigit()]
    if not _ISSUED.fullmatch("".join(map(str, digits))):
        return False
    doubled = (d if i % 2 == 0 else d * 2 - 9 * (d > 4) for i, d in enumerate(reversed(digits)))
    return sum(doubled) % 10 == 0


def fenced(name: str, text: str) -> str:
    """`text`, sanitised, between the marks that the base prompt declares to be data."""
    return f'<data name="{name}">\n{sanitise(text)}\n</data>'


def one_line(text: str, limit: int) -> str:
    """`text` as at most `limit` characters on one line, invisible characters dropped, cut with an ellipsis."""
    flat = " ".join(_visible(text).split())
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"


def plain_words(text: str) -> str:
    """The words of `text` in lower case, a space between two of them: equal for texts that differ in spacing and punctuation alone."""
    return " ".join(re.findall(r"\w+", sanitise(text).casefold())) or text


def clean_json(value: Any, *, depth: int = 0) -> Any:
    """A copy of `value` that `jsonb` takes: text cleaned, NaN and infinities as null, keys as text, what is nested deeper
    than `MAX_JSON_DEPTH` replaced by a visible note, and anything that is no JSON written as its text."""
    if depth > MAX_JSON_DEPTH:
        return "[nested too deeply]"
    if isinstance(value, str):
        return clean_text(value)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {clean_text(str(k)): clean_json(v, depth=depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [clean_json(v, depth=depth + 1) for v in value]
    return clean_text(str(value))


# `json.dumps` makes an encoder at each call.
_COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str)
_CANONICAL = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)


def to_json(value: Any) -> str:
    """`value` (already clean) as compact JSON; raises ValueError for NaN."""
    return _COMPACT.encode(value)


def canonical_hash(value: Any) -> str:
    """SHA-256, in hex, of `value` as JSON with sorted keys: equal for equal values, whatever the order of keys."""
    return hashlib.sha256(_CANONICAL.encode(clean_json(value)).encode()).hexdigest()


@functools.cache
def _encoder() -> Any:
    try:
        import rs_bpe.bpe as bpe
    except ImportError:  # no wheel for this platform: fall back to the byte rule
        return None
    return bpe.openai.cl100k_base()


@_by_digest
def plain_tokens(text: str) -> int:
    """How many tokens a common vocabulary (cl100k) makes of `text`; half its UTF-8 bytes where that is not installed."""
    encoder = _encoder()
    if encoder is None:
        return math.ceil(len(text.encode("utf-8", "replace")) / 2)
    return int(encoder.count(clean_text(text)))


def count_tokens(text: str) -> int:
    """A careful estimate of the tokens a provider will charge for `text`: the plain count and 30 %, for vocabularies differ."""
    return math.ceil(plain_tokens(text) * 1.3)
