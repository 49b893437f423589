"""What a GPU tells by the number of a field: all of it in one call, and what it lacks by calls instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gputally.model import Unreadable
from gputally.sources.nvml_ask import MALFORMED, Asker, Rows
from gputally.sources.nvml_codes import Meaning, meaning
from gputally.sources.nvml_fields import FIELD_VALUES, FieldValue, Put, Values
from gputally.sources.nvml_seldom import Seldom


class _Form(NamedTuple):
    """Fields that are to be asked, as the call wants them; those that are told anew come first."""

    rows: Sequence[FieldValue]
    wanted: Sequence[Sequence[int]]
    keys: Sequence[str]
    quick: Sequence[Put]
    slow: Sequence[Put]


@dataclass
class Numbered:
    """Numbered fields of one GPU; only its lane touches it."""

    ask: Asker
    seldom: Seldom
    rows: Sequence[FieldValue]
    _absent: set[FieldValue] = field(default_factory=set)
    """Those that this GPU does not know."""
    _silent: set[FieldValue] = field(default_factory=set)
    """Slow ones that told nothing when they were asked, but may at the next reading."""
    _instead: Rows = ()
    """The calls for absent ones."""
    _forms: dict[bool, _Form] = field(default_factory=dict)
    """By whether slow fields are due; none after what is absent or silent changed."""

    def forget(self) -> None:
        """What it does not know is no longer true: another driver, another layout, another GPU."""
        self._absent.clear()
        self._silent.clear()
        self._forms.clear()
        self._instead = ()

    def read(self, values: Values) -> None:
        """Add what those fields tell; what slow ones tell is kept."""
        due, absent = self.seldom.due, len(self._absent)
        form = self._forms.get(due) or self._forms.setdefault(due, self._form(due))
        answers = self._answers(form)
        raws = [*map(answers.get, form.keys)]
        if not self._all_put(form, raws, values):
            self._put_each(form, raws, values)
        learned: Rows = ()
        if len(self._absent) != absent:
            learned, self._instead = self._calls_for(form.rows), self._calls_for(self.rows)
            self._forms.clear()
        self.seldom.read(self._instead, now=learned)

    def _form(self, due: bool) -> _Form:
        known = [row for row in self.rows if row not in self._absent]
        quick = [row for row in known if not row.slow]
        slow = [row for row in known if row.slow and (due or row in self._silent)]
        rows = [*quick, *slow]
        return _Form(
            rows,
            [[row.id, row.scope] for row in rows],
            [str(row.id) for row in rows],
            [row.put for row in quick],
            [row.put for row in slow],
        )

    def _calls_for(self, rows: Sequence[FieldValue]) -> Rows:
        """Those that stand in for fields that the GPU does not know."""
        return tuple([row.instead for row in rows if row.instead is not None and row in self._absent])

    def _answers(self, form: _Form) -> dict[str, Any]:
        if not form.rows:
            return {}
        try:
            answers = self.ask.supported(self.ask.uuid, FIELD_VALUES, form.wanted)
        except Unreadable as error:
            if meaning(error.code) is Meaning.ABSENT:
                self._absent.update(form.rows)
            return {}
        return answers if isinstance(answers, dict) else {}

    def _all_put(self, form: _Form, raws: Sequence[Any], values: Values) -> bool:
        """Whether every field told what it should; then it is added."""
        if None in raws or dict in map(type, raws):
            return False
        try:
            for put, raw in zip(form.quick, raws, strict=False):
                put(values, raw)
            if form.slow:
                kept = self.seldom.told()
                for put, raw in zip(form.slow, raws[len(form.quick) :], strict=True):
                    put(kept, raw)
        except MALFORMED:
            return False
        if raws:
            self.ask.answered = True
        self._note_silent(set())
        return True

    def _put_each(self, form: _Form, raws: Sequence[Any], values: Values) -> None:
        """The same where something is wrong with some of them."""
        silent = set()
        for row, raw in zip(form.rows, raws, strict=True):
            if type(raw) is dict:
                self._note(row, raw.get("error"))
            elif raw is not None:
                self.ask.answered = True
                try:
                    row.put(self.seldom.told() if row.slow else values, raw)
                    continue
                except MALFORMED:
                    self.ask.malformed(FIELD_VALUES)
            silent.add(row)
        self._note_silent({row for row in silent if row.slow} - self._absent)

    def _note_silent(self, rows: set[FieldValue]) -> None:
        if rows != self._silent:
            self._silent = rows
            self._forms.clear()

    def _note(self, row: FieldValue, code: int | None) -> None:
        if meaning(code) is Meaning.ABSENT:
            self._absent.add(row)
        else:
            self.ask.field_failed(row.id, code)
