"""What a query says, phrase by phrase: the cue lists of `cues/*.json`, and how a text is read by them.

The files are read once, on first use. A phrase is words in lower case without apostrophes ("whats"); `{unit}`
stands for each phrase of that set in `words.json`, `#` for a number, `@year`, `@date` and `@email` for what
they say. What each file holds: `entities` the routing table and its phrases, `intents` what is asked of an
entity, `reference` what points outside the query, `beyond` what no skill answers, `words` all the rest.

Kinds in `words` that ask for something after them: `bound` a period ("since"), `quantity` and `number` an
entity ("last 5"), `naming` up to two words of any sort ("called"). `change` asks for an `auxiliary` ("did …
grow") and `plan_noun` for a plan's name anywhere. `filler` and `filter` are read and never decide a route.
"""

import itertools
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

CUES = Path(__file__).parent / "cues"
# No question for a skill is longer; the limits also bound the work of a hostile query.
MAX_CHARACTERS = 400
MAX_WORDS = 60  # with punctuation
MIN_MISSPELT = 5  # letters; shorter words have too many neighbours
PLAN_LISTS = 256  # sites whose prepared plan names are kept
TOKEN = re.compile(
    r"(?P<email>[\w.+-]{1,64}+@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4})"
    r"|(?P<date>\d{4}-\d{1,2}(?:-\d{1,2})?(?!\w)|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}(?!\w))"
    r"|(?P<year>(?:19|20)\d\d(?!\w))"
    r"|(?P<number>\d+(?:[.,]\d+)*(?:st|nd|rd|th|k)?(?!\w))"
    r"|(?P<word>[^\W_]+(?:['’][^\W_]+)*)"
    r"|(?P<comma>[.,?!:/&+()–—])"
    r"|(?P<quote>[\"“”„«»'’‘])"
    r"|(?P<silent>[\s$€£%-])"
    r"|(?P<symbol>.)",
    re.DOTALL,
)

Words = tuple[str, ...]


class Cue(NamedTuple):
    """A phrase of the lists or a plan's name, and what it says by kind: "over" is a bound and an intent."""

    phrase: str
    says: Mapping[str, str]


class Text(NamedTuple):
    """Words as written, for plan names, and in the forms of the lists: spelling mended, numbers alike."""

    written: Words
    forms: Words


class Lists(NamedTuple):
    """The cue files, ready to match."""

    cues: Mapping[Words, Cue]
    longest: int
    words: frozenset[str]
    reference_words: frozenset[str]
    numbers: frozenset[str]
    before_a_plan: frozenset[str]
    misspellings: Mapping[str, str]
    edits: Mapping[str, str]


class Plans(NamedTuple):
    """A site's plan names: those recognised anywhere, those that need context, and those that need quotes."""

    anywhere: Mapping[Words, Cue]
    in_context: Mapping[Words, Cue]
    in_quotes: Mapping[Words, Cue]
    longest: int


UNREAD = Cue("", {"unread": "words"})
TOO_LONG = Cue("", {"unread": "length"})
NAME = Cue("", {"filler": "name"})
MARKS = {
    "@comma": Cue(",", {"join": "comma", "skip": "comma"}),
    "@quote": Cue('"', {"skip": "quote"}),
    "@symbol": Cue("", {"unread": "symbols"}),
}


def read_cues(text: str, plan_names: tuple[str, ...]) -> list[Cue]:
    """Returns the cues of a text in order, the longest at each place; a word in no list is `UNREAD`.

    A text over the limits is not read: it is one cue, `TOO_LONG`.
    """
    text = " ".join(text.split())
    if len(text) > MAX_CHARACTERS:
        return [TOO_LONG]
    tokens = _tokens(text)
    if len(tokens) > MAX_WORDS:
        return [TOO_LONG]
    return list(_cues(_words(tokens), prepare_plans(plan_names)))


def read_json(name: str) -> dict[str, Any]:
    """Returns one cue file."""
    loaded: dict[str, Any] = json.loads((CUES / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


@cache
def load_lists() -> Lists:
    """Returns the cue lists. A phrase that stands in several keeps all it says."""
    says: dict[Words, dict[str, str]] = {}
    vocabulary = read_json("words")
    for kind, name, phrase in _phrases(vocabulary["kinds"]):
        for words in _expand(phrase, vocabulary["sets"]):
            says.setdefault(words, {})[kind] = name
    known = frozenset(itertools.chain.from_iterable(says))
    edits: dict[str, str] = {}
    references = {words for words, said in says.items() if "reference" in said}
    # Words of the reference cues come first: of two that a misspelling is near, the one that demotes wins.
    for word in itertools.chain(sorted({w for words in references for w in words}), sorted(known)):
        for edit in _edits(word):
            if edit != word or len(word) > MIN_MISSPELT:  # "plants" is no misspelling of "plans"
                edits.setdefault(edit, word)
    return Lists(
        cues={words: Cue(" ".join(words), said) for words, said in says.items()},
        longest=max(map(len, says)),
        words=known,
        reference_words=frozenset(words[0] for words in references if len(words) == 1),
        numbers=frozenset(vocabulary["numbers"]),
        before_a_plan=frozenset(vocabulary["before_a_plan"]),
        misspellings=vocabulary["misspellings"],
        edits=edits,
    )


@lru_cache(maxsize=PLAN_LISTS)
def prepare_plans(names: tuple[str, ...]) -> Plans:
    """Returns a site's plan names sorted by the evidence each needs (see the router's docstring)."""
    lists = load_lists()
    anywhere: dict[Words, Cue] = {}
    in_context: dict[Words, Cue] = {}
    in_quotes: dict[Words, Cue] = {}
    for name in names:
        text = _words(_tokens(name), mend=False)
        pairs = [pair for pair in zip(text.written, text.forms, strict=True) if pair[1] not in MARKS]
        words, forms = tuple(word for word, _ in pairs), tuple(form for _, form in pairs)
        if not forms:
            continue
        if _reads_as_reference(forms, lists):
            group = in_quotes
        elif all(form in lists.words for form in forms):
            group = in_context
        else:
            group = anywhere
        group[words] = Cue(name, {"entity": "plan_name"})
    longest = max(map(len, [*anywhere, *in_context, *in_quotes]), default=0)
    return Plans(anywhere, in_context, in_quotes, longest)


def _phrases(kinds: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, str, str]]:
    """Yields (kind, name, phrase) of every cue file."""
    for kind, phrases in kinds.items():
        yield from ((kind, kind, phrase) for phrase in phrases)
    for kind, phrases in read_json("reference").items():
        yield from ((kind, kind, phrase) for phrase in phrases)
    for file, kind in (("intents", "intent"), ("beyond", "beyond")):
        for name, phrases in read_json(file).items():
            yield from ((kind, name, phrase) for phrase in phrases)
    for name, entity in read_json("entities").items():
        yield from (("entity", name, phrase) for phrase in entity["phrases"])


def _expand(phrase: str, sets: Mapping[str, list[str]]) -> Iterator[Words]:
    """Yields the phrase with each member of its sets."""
    options = [sets[word[1:-1]] if word.startswith("{") else [word] for word in phrase.split()]
    for choice in itertools.product(*options):
        yield tuple(" ".join(choice).split())


def _reads_as_reference(forms: Words, lists: Lists) -> bool:
    """Says whether a name is made of reference words only, or has a longer reference cue in it."""
    if all(form in lists.reference_words for form in forms):
        return True
    sizes = range(2, lists.longest + 1)
    spans = (forms[i : i + size] for size in sizes for i in range(len(forms) - size + 1))
    return any(span in lists.cues and "reference" in lists.cues[span].says for span in spans)


def _cues(text: Text, plans: Plans) -> Iterator[Cue]:
    lists = load_lists()
    i = name_words = 0
    while i < len(text.forms):
        size, cue = _longest(text, i, plans, lists)
        if text.forms[i] == "the" and size > 1:
            # "The refund" points at one, "the refund total" does not: the longer reading wins.
            following, _ = _longest(text, i + 1, plans, lists)
            if following >= size:
                size, cue = 1, lists.cues["the",]
        if cue is UNREAD and name_words:
            cue = NAME  # "members called Anna Bell": at most two words
        name_words = 2 if "naming" in cue.says else max(name_words - 1, 0)
        yield cue
        i += size


def _longest(text: Text, i: int, plans: Plans, lists: Lists) -> tuple[int, Cue]:
    """Returns how many words the longest plan name or cue at `i` covers, and the cue; a plan wins a tie."""
    left = len(text.forms) - i
    if left and text.forms[i] in MARKS:
        return 1, MARKS[text.forms[i]]
    for size in range(min(max(lists.longest, plans.longest), left), 0, -1):
        cue = _plan(text, i, size, plans, lists) or lists.cues.get(text.forms[i : i + size])
        if cue:
            return size, cue
    return 1, UNREAD


def _plan(text: Text, i: int, size: int, plans: Plans, lists: Lists) -> Cue | None:
    """Returns the plan that these words name where they stand, if they do."""
    if size > plans.longest:
        return None
    words = text.written[i : i + size]
    if words in plans.anywhere:
        return plans.anywhere[words]
    before = text.forms[i - 1] if i else ""
    after = text.forms[i + size] if i + size < len(text.forms) else ""
    quoted = before == after == "@quote"
    if quoted and words in plans.in_quotes:
        return plans.in_quotes[words]
    beside_noun = any("plan_noun" in lists.cues.get((word,), UNREAD).says for word in (before, after))
    if quoted or beside_noun or before in lists.before_a_plan:
        return plans.in_context.get(words)
    return None


def _tokens(text: str) -> list[tuple[str, str]]:
    """Returns the tokens of a text by kind, without case and without characters that cannot be seen."""
    if not text.isascii():
        text = "".join(c for c in unicodedata.normalize("NFC", text) if unicodedata.category(c) != "Cf")
    tokens: list[tuple[str, str]] = []
    for piece in text.casefold().split():
        if piece.isalpha():
            tokens.append(("word", piece))  # as most are: the pattern would try all else first
        else:
            tokens += ((match.lastgroup or "", match[0]) for match in TOKEN.finditer(piece))
    return [token for token in tokens if token[0] != "silent"]


def _words(tokens: Iterable[tuple[str, str]], mend: bool = True) -> Text:
    """Returns the words that the tokens are, without apostrophes."""
    written, forms = [], []
    for kind, word in tokens:
        if kind == "word":
            word = word.replace("'", "").replace("’", "")
            forms.append(_form(word, mend))
        else:
            forms.append("#" if kind == "number" else f"@{kind}")
        written.append(word)
    return Text(tuple(written), tuple(forms))


def _form(word: str, mend: bool) -> str:
    """Returns the word as the lists spell it, or unchanged."""
    lists = load_lists()
    if word in lists.numbers:
        return "#"
    if word in lists.words or not mend:
        return word
    if word in lists.misspellings:
        return lists.misspellings[word]
    return next((lists.edits[edit] for edit in _edits(word) if edit in lists.edits), word)


def _edits(word: str) -> list[str]:
    """Returns forms that two words share if they are about one letter apart; none for a short word.

    From six letters: the word, and each form with one letter after the first left out. Of five, where most
    neighbours are words in their own right ("match", "march"): the word, and its letters in the alphabet's
    order, so that only swapped ones are mended ("chrun").
    """
    if len(word) > MIN_MISSPELT:
        return [word, *(word[:i] + word[i + 1 :] for i in range(1, len(word)))]
    return [word, word[0] + "~" + "".join(sorted(word[1:]))] if len(word) == MIN_MISSPELT else []
