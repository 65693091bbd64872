"""What a task is, and how an answer to it is checked: by facts, never by wording."""

import csv
import io
import json
import re
from dataclasses import dataclass, field

# The ways in which people say that something is not there. A word that something may as well be called ("an unknown
# error") says it behind a verb alone.
_DENIALS = re.compile(
    r"\b(not|no|none|nothing|never|neither|nowhere|unable to|cannot|without|lacks?)\b|n't\b|n’t\b"
    r"|^\W*(missing|absent|unknown)\W*$|\b(is|are|was|were|remains?) (missing|absent|unknown|unable)\b",
    re.I,
)


@dataclass
class File:
    """What a file has to be afterwards. All that is given must hold."""

    has: tuple = ()
    lacks: tuple = ()
    equals: str | None = None
    json: object = None
    rows: list | None = None
    most: int | None = None

    def wrong(self, text):
        if text is None:
            return "is not there"
        told = _facts(text)
        for fact in self.has:
            if not _says(told, fact):
                return f"lacks {fact!r}"
        for fact in self.lacks:
            if _says(told, fact):
                return f"has {fact!r}"
        if self.equals is not None and text.rstrip() != self.equals.rstrip():
            return "differs"
        if self.json is not None:
            try:
                if json.loads(text) != self.json:
                    return "is other JSON"
            except ValueError:
                return "is no JSON"
        if self.rows is not None:
            rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text)) if row]
            if rows != self.rows:
                return "has other rows"
        if self.most is not None and len(text.strip().splitlines()) > self.most:
            return f"has more than {self.most} lines"
        return None


@dataclass
class Task:
    """A goal in a world of files.

    `says` are facts that the answer must have: a string, or a tuple of which one is enough; `lacks` are facts that it must
    not have. `absent`: the answer has to say that it is not there. `files` are the files that must be so afterwards; all
    others must be as they were, and no other may have come, but those in `may`. `answer` and `made` are an example of a
    right outcome: `--self-test` holds that it passes, and that the worlds as they are do not.
    """

    kind: str
    goal: str
    answer: str
    says: tuple = ()
    lacks: tuple = ()
    absent: bool = False
    files: dict = field(default_factory=dict)
    may: tuple = ()
    made: dict = field(default_factory=dict)
    world: str = ""

    @property
    def id(self):
        return f"{self.world}/{self.kind}"

    def wrong(self, answer, before, after):
        """Why the outcome is wrong, or None. `before` and `after` map paths to texts."""
        told = _facts(answer or "")
        if not told.strip():
            return "no answer"
        for fact in self.says:
            if not _says(told, fact):
                return f"answer lacks {fact!r}"
        for fact in self.lacks:
            if _says(told, fact):
                return f"answer has {fact!r}"
        if self.absent and not _DENIALS.search(answer):
            return "answer does not say that it is not there"
        for path, wanted in self.files.items():
            if problem := wanted.wrong(after.get(path)):
                return f"{path} {problem}"
        for path in sorted(before.keys() | after.keys()):
            if path not in self.files and path not in self.may and before.get(path) != after.get(path):
                return f"{path} was {'made' if path not in before else 'changed' if path in after else 'deleted'}"
        return None


def _facts(text):
    """The text as facts are looked for in it: lower case, thousands unseparated, blanks alike."""
    text = text.lower().replace("’", "'").replace("**", "").replace("`", "")
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    return re.sub(r"\s+", " ", text)


def _says(told, fact):
    if isinstance(fact, tuple):
        return any(_says(told, one) for one in fact)
    fact = _facts(str(fact))
    if re.fullmatch(r"-?\d+(\.\d+)?", fact):
        # The number itself and not a part of another; 12.50 is 12.5.
        return any(float(number) == float(fact) for number in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?!\d)", told))
    return re.search(rf"(?<!\w){re.escape(fact)}(?!\w)", told) is not None
