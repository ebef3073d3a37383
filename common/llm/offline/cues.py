"""The words by which the offline model recognises what is asked: data, in the order in which they are tried.

English first; metrics also in German, Spanish and French. Patterns are matched without case, anywhere in a clause.
"""

from __future__ import annotations

import re


def phrases(text: str) -> re.Pattern[str]:
    """A pattern that finds any of the phrases, each a small regular expression, set apart by semicolons; whole words, any case."""
    alternatives = "|".join(phrase.strip() for phrase in text.split(";"))
    return re.compile(rf"(?<!\w)(?:{alternatives})(?!\w)", re.IGNORECASE)


METRICS: dict[str, re.Pattern[str]] = {
    "cancelled_members": phrases(
        r"""cancell?ed members; cancell?ations?; members? (?:lost|left|cancell?ed); lost members;
        (?:who|members) left; (?:members|people|customers) (?:did|do|have) (?:we|i) los[et];
        kündigungen; cancelaciones; bajas; résiliations?; annulations?"""
    ),
    "new_members": phrases(
        r"""new(?:ly joined)?(?: (?:and|or|vs\.?|versus) cancell?ed)? members?; sign-?ups?; joins?; joined;
        new subscribers?; signed up;
        (?:members|people|customers) (?:did|do|have) (?:we|i) (?:gain(?:ed)?|get|win|won);
        neue mitglieder; neumitglieder; nuevos miembros; nouveaux membres; altas"""
    ),
    "active_members": phrases(
        r"""active members?; active subscribers?; member(?:ship)? growth; paying members?;
        member count; member(?:ship)? numbers?;
        how many members(?! (?:(?:have|has|did|do) )?(?:(?:we|i) )?(?:cancel|left|joined|signed|expired|paused|los[et]|gain|get|win))\w*;
        number of members;
        size of (?:my|our|the) (?:club|community|site);
        aktive[nr]? mitgliedern?; wie viele mitglieder; miembros activos; cuántos miembros; membres actifs;
        combien de membres"""
    ),
    "churn_rate": phrases(
        r"""churn(?: rate)?; churning; attrition; abwanderung; kündigungsrate; tasa de cancelación;
        taux de résiliation"""
    ),
    "mrr": phrases(
        r"""mrr; monthly recurring(?: revenue)?; recurring revenue; ingresos recurrentes; revenu récurrent"""
    ),
    "arpu": phrases(r"arpu; (?:average )?revenue per (?:user|member); umsatz pro mitglied"),
    "refunds": phrases(
        r"""refund(?:s|ed)?; money back; erstattung(?:en)?; rückerstattung(?:en)?; reembolsos?;
        remboursements?"""
    ),
    "revenue": phrases(
        r"""revenues?; sales; income; turnover; earn(?:ed|ings)?; takings;
        how much (?:money|did (?:i|we) make); umsatz; einnahmen; ingresos; ventas; chiffre d.affaires;
        revenus"""
    ),
}

# A metric named by one of these swallows the plainer one inside it: "recurring revenue" asks for MRR alone.
IMPLIED_BY: dict[str, tuple[str, ...]] = {"revenue": ("mrr", "arpu")}

TARGETS: dict[str, re.Pattern[str]] = {
    "recent_members": phrases(
        r"""(?:recent(?:ly joined)?|newest|latest|last \d+) members?; most recent members?;
        (?:who|everyone|people|members?)(?: who| that)? (?:has |have )?(?:just |recently )?(?:joined|signed up);
        recent sign-?ups?; latest sign-?ups?;
        (?:neueste[n]?|letzten) mitglieder; wer ist (?:\w+ )?beigetreten; últimos miembros;
        quién(?:es)? se (?:ha |han )?(?:unió|unido|unieron); derniers membres"""
    ),
    "cancellations": phrases(
        r"""who (?:has |have )?(?:recently )?(?:cancell?ed|left);
        (?:list|show|recent|latest|last \d+)(?: \w+){0,3} cancell?ations;
        which members (?:cancell?ed|left); wer hat (?:\w+ )?gekündigt; quién(?:es)? (?:ha |han )?cancel\w+; qui a résilié"""
    ),
    "transactions": phrases(
        r"""transactions?; payments?; charges?; orders?; invoices?; list(?: \w+){0,4} refunds; zahlungen;
        pagos; paiements"""
    ),
    "memberships": phrases(
        r"""(?:membership |price |pricing |my |our |which |what |many |the |those )?plans; memberships; (?:which|each|every|per|by) plan;
        membership (?:tiers|levels|options); tiers; (?:price|cost) of; what (?:do|does) .{1,40} cost;
        how much (?:do|does|is) .{1,40} cost; mitgliedschaften; tarife; pläne; planes; abonnements"""
    ),
    "members": phrases(
        r"""show(?: (?!new|active)\w+){0,4} members?; (?:list|find|search|which|name|look up)(?: \w+){0,4} members?;
        members? (?:named|called|on|whose|with(?! (?:the )?(?:last|previous|earlier|before))); list of members; find \S+@\S+;
        (?:active|expired|paused|trial\w*|inactive|cancell?ed) members (?:on|named|with(?! (?:the )?(?:last|previous|earlier|before)))"""
    ),
}

# A person looked for by a name or an address.
PERSON = re.compile(
    r"\b(?:[Ff]ind|[Ww]ho is|[Ll]ook up|[Ss]earch(?: for)?) (?:[\"“]?([A-Z][\w'’-]+(?: [A-Z][\w'’-]+)+)|(\S+@\S+\.\w+))"
)

PEOPLE = phrases(
    "members?; people; subscribers?; customers?; who; everyone; mitgliedern?; kunden; leute; miembros; soci[oa]s; personas; membres"
)

# These count people of another time than now.
NOT_NOW = phrases("joined; signed up; cancell?ed; left; lost; ever; in total; all time")

COUNTING = phrases("how many; number of; count; cuántos; wie viele; combien")

# What counting each list asks for.
COUNT_OF = {"recent_members": "new_members", "cancellations": "cancelled_members"}

FORECAST = phrases(r"will .{1,40} be; forecast; predict\w*; next (?:week|month|quarter|year); by christmas")

# A list that was asked for makes the count of the same thing superfluous.
LISTS_INSTEAD_OF: dict[str, tuple[str, ...]] = {
    "recent_members": ("new_members",),
    "cancellations": ("cancelled_members",),
    "members": ("active_members", "cancelled_members"),
    "memberships": ("active_members",),
    "transactions": ("refunds", "revenue"),
}

RECALL = phrases(
    r"""last time; previously; earlier; before; you (?:showed|told|gave|said|listed|mentioned|found|fetched);
    did you (?:show|tell|give|say|list|mention|find);
    (?:as )?we (?:discussed|talked|spoke|decided|agreed|said);
    did we (?:discuss|talk|speak|decide|agree|say|conclude); have we (?:discussed|decided|agreed);
    i asked (?:you )?(?:about|for); (?:number|figure|ones?|plans?|list) (?:i|we|you) \w+;
    our last (?:chat|talk|conversation); when we (?:spoke|talked); remind me; do you remember;
    what do you (?:know|remember) about (?:me|us|my); what did i (?:tell|say|ask|decide);
    did i (?:tell|say|ask|mention|decide); those (?:plans|members|numbers|figures|transactions|cancellations|people|refunds);
    (?:show|list|tell|give) .{0,40} again;
    (?:is|was) .{0,40}saved; you last \w+; last (?:told|showed|said|gave);
    letztes mal; vorhin; zuletzt (?:gesagt|gezeigt|besprochen); haben wir .{0,40}(?:besprochen|entschieden|beschlossen|vereinbart);
    la última vez; me (?:l[oa]s? )?(?:mostraste|dijiste); (?:hablamos|decidimos|acordamos); la dernière fois; m'as (?:montré|dit);
    (?:avons-nous|on a) (?:discuté|décidé)"""
)

# What the customer asked, not what was answered.
ASKED = phrases(
    r"""(?:what|which questions?|when) (?:did|have) (?:i|we) (?:last |first )?ask(?:ed)?(?! you to);
    my (?:last|first|previous|earlier) questions?; was habe ich .{0,30}gefragt; qué (?:te )?pregunté; qu'ai-je demandé"""
)

# What is remembered of the customer as such.
ABOUT_ME = phrases(
    r"""(?:know|remember(?:ed)?|stored?|saved?) (?:about|of) (?:me|us|my (?:business|club|site)); what do you remember;
    über mich; sobre mí; sur moi"""
)

COMPARES = phrases(
    r"""compar\w+; gr(?:own?|ew|owing); chang(?:ed?|ing); rise|rose|risen; fall|fell|fallen; dropp?(?:ed)?; increased?;
    decreased?; higher; lower; more than; fewer; less than; better; worse; up or down; differen\w+; vergl\w+; compara\w*"""
)

# What a question about earlier talk says that it was about.
TOPIC = re.compile(r"\b(?:about|regarding|concerning|my|our|über|mein\w*|sobre|mis?)\s+(.+)", re.IGNORECASE)

# Words of a question about earlier talk that do not say what the talk was about.
ABOUT_TALK = """show shown told tell gave give said say list found fetched mention asked ask answer number figure result question
    earlier before previous previously time last again know remember remind discuss talk spoke speak decide decision decisions agree
    conclusion conclude plan session chat conversation exactly detail note saved did we still now then letztes mal besprochen
    entschieden vorhin gefragt dich gesagt gezeigt hablamos decidimos vez última dernière fois"""

TALK = phrases(
    r"""discuss(?:ed)?; talk(?:ed)?; spoke; speak; decid(?:ed|e); decisions?; agreed?; conclu(?:ded?|sion);
    plan(?:ned)? to do; besprochen; entschieden; beschlossen; vereinbart; hablamos; decidimos; acordamos; discuté; décidé"""
)

DECIDED = phrases(
    "decid(?:ed|e); decisions?; agreed?; conclu(?:ded?|sion); entschieden; beschlossen; decidimos; décidé"
)
LAST_TALK = phrases(
    "(?:last|latest|previous) (?:time|session|chat|talk|conversation); letztes mal; última vez; dernière fois"
)
LEFT_OPEN = phrases("open; left to do; to-?do; pending; outstanding; unfinished; offen")

CONTINUITY = phrases(
    r"""where (?:were|did) we(?: (?:leave|left) off)?; where we left off; pick up where; last session;
    previous session; wrap-?ups?; what(?:'s| is) (?:still )?open; open items;
    how did .{1,60} (?:go|work(?: out)?|perform|turn out); what happened (?:to|with);
    any (?:news|progress) (?:on|with); continue with; next steps?; what should (?:i|we) do next; what'?s next"""
)

NOW = phrases(
    r"""now; current(?:ly)?; today; at the moment; right now; as of today; latest; up to date; still;
    meanwhile; since then; compar\w+; jetzt; aktuell; heute; ahora; actualmente; hoy; maintenant;
    actuellement"""
)

DETAILS = phrases(
    r"""details?; exact(?:ly)?; full; names?; each; all of (?:them|it); list; prices?; complete; every"""
)

ADVICE = phrases(
    r"""how (?:do|can|should|could|would) (?:i|we|one|you); how to; what should; should (?:i|we);
    what can (?:i|we) do; tips?; ideas?; best (?:way|practices?); advice; advise; recommend\w*; suggest\w*;
    strateg\w+; is it (?:wise|worth|good|better); what do you think; explain; what (?:is|are) (?:a|an)\b.*;
    help me; (?:to|want to|can we|could we) (?:improve|reduce|increase|lower|raise|grow)"""
)

# Asks for a judgement of a number, which needs the number.
JUDGES = phrases("(?:is|are) (?:my|our|the) .{1,40} (?:good|bad|normal|healthy|high|low|ok(?:ay)?)")

# Asks what a word means.
DEFINES = phrases(
    r"what does .{1,30} mean; what(?:'s| is) (?:churn|mrr|arpu|monthly recurring revenue)(?: rate)?\W*$"
)

FORGET = phrases(
    r"(?:please )?(?:forget|delete|erase|remove)(?! (?:your|all|previous|the) .{0,20}(?:instructions?|rules?|prompt))"
    r" .{0,40}(?:memor(?:y|ies)|remember\w*|about me|everything|you know)"
)

HELP = phrases(
    r"help\W*$; what can (?:you|i) (?:do|ask)\b.*; who are you; what are you; how do you work; hilfe\W*$; ayuda\W*$"
)

REMEMBER = re.compile(
    r"^(?:(?:please|and|also|ok(?:ay)?|hey)[, ]+)*(?:can you |could you )?(?:please )?"
    r"(?:remember|note|make a note|keep in mind|don'?t forget|merk(?:e)? dir|denk(?:e)? daran|recuerda|retiens)(?: down)?"
    r"(?:,? (?:that|dass|que)|:|,)?\s+(?P<content>.+)",
    re.IGNORECASE | re.DOTALL,
)

# With one of these a question that begins "remember" asks to have something kept, and does not ask what was.
REQUESTS = phrases("can you; could you; please; that; dass; que")

GREETING = re.compile(
    r"^(?:hi|hello|hey|good (?:morning|afternoon|evening)|hallo|guten (?:tag|morgen)|hola|bonjour|salut|bye|great|cool"
    r"|ok(?:ay)?|thanks?(?: you)?(?: very much| a lot)?|danke|gracias|merci)(?: there| all| everyone)?[\s!.,]*$",
    re.IGNORECASE,
)

THANKS = phrases("thanks?(?: you)?; danke; gracias; merci; bye; great; cool; ok(?:ay)?")

# Sentences of a stored text that speak to the model instead of telling it something: never quoted, as they are never followed.
ORDERS = re.compile(
    r"\b(?:ignore|disregard|override|forget)\b.{0,40}\b(?:instructions?|rules?|prompts?|above|previous)|system prompt|you are now|"
    r"\b(?:call|use|invoke) the tool\b|as an ai\b|</?\w+>",
    re.IGNORECASE,
)

STATUSES = (
    "active",
    "cancelled",
    "expired",
    "paused",
    "suspended",
    "pending",
    "trial",
    "inactive",
    "complete",
    "refunded",
    "failed",
)

# Counting members of these is a metric of its own.
STATUSES_WITH_METRIC = ("active", "cancelled")

GRANULARITIES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("day", phrases(r"days?; daily; today; yesterday; tage?n?; días?; jours?")),
    ("week", phrases(r"weeks?; weekly; wochen?; semanas?; semaines?")),
    (
        "month",
        phrases(r"months?; monthly; monate?n?; mes(?:es)?; mois; quarters?; years?; annual"),
    ),
)

MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)

# Metrics that add up over periods; the others are states or ratios.
FLOWS = ("new_members", "cancelled_members", "revenue", "refunds")

MONEY = ("mrr", "revenue", "refunds", "arpu")

LABELS = {
    "active_members": "active members",
    "new_members": "new members",
    "cancelled_members": "cancelled members",
    "churn_rate": "churn rate",
    "mrr": "MRR",
    "revenue": "revenue",
    "refunds": "refunds",
    "arpu": "ARPU",
    "memberships": "plans",
    "members": "members",
    "recent_members": "recent members",
    "cancellations": "cancellations",
    "transactions": "transactions",
}
