"""Words, counted and compared, in languages with spaces and without."""

from __future__ import annotations

import re

# Scripts that write no spaces: two characters make about a word.
_DENSE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\u0e00-\u0e7f"
_DENSE_RUN = re.compile(f"[{_DENSE}]+")
_WORD = re.compile(r"[^\W_]+")
_STEM = 5

# Words that any two sentences of a language may share, so that sharing them says nothing.
_EMPTY_WORDS = """
about after again also and any are been before being but can could did does doing done down each for from get gets going got had has
have having her here him his how into its just let lets like made make more most much not now off one only other our out over really
said same say she should some such than that the their them then there these they this those through too under until upon use used user
very want wants was way well were what when where which while who why will with would yes yet you your assistant advisor customer owner
aber alle als also auch auf aus bei bin bis das dass dem den der des die dies diese dieser doch dort durch ein eine einem einen einer
eines etwas euch für gegen haben hat hier hätte ich ihm ihn ihr ihre immer ist jetzt kann kein keine können man mehr mein meine mich mir
mit muss nach nicht noch nur oder ohne schon sehr sein seine sich sie sind soll sollen über und uns unser unsere vom von vor war was weil
wenn werden wie wieder will wir wird wird wollen würde zum zur zwischen
algo ante antes aquí así aún cada como con cual cuando del desde donde dos ella ellos entre era esa ese eso esta este esto está están
fue hace hacer hasta hay las les los más mientras muy nada nos nosotros nuestra nuestro otra otro para pero poco por porque pues que qué
quien quiere ser sin sobre son sus también tanto tiene tienen todo todos una unas uno unos usted vamos voy
"""
_EMPTY = frozenset(_EMPTY_WORDS.split())


def count_words(text: str) -> int:
    """How many words `text` has."""
    dense = sum(len(run) for run in _DENSE_RUN.findall(text))
    return len(_DENSE_RUN.sub(" ", text).split()) + (dense + 1) // 2


def content_words(text: str) -> frozenset[str]:
    """What `text` speaks of, to see whether two texts share anything: numbers, words that are not empty, cut to a rough stem, and pairs
    of characters where a script has no spaces."""
    found = set()
    for run in _DENSE_RUN.findall(text):
        found |= {run[at : at + 2] for at in range(max(len(run) - 1, 1))}
    for word in _WORD.findall(_DENSE_RUN.sub(" ", text).casefold()):
        if word.isdigit() or (len(word) > 2 and word not in _EMPTY):
            found.add(word[:_STEM])
    return frozenset(found)
