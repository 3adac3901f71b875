"""Questions before something is changed: yes or no, or a reason in words."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static


class Confirm(ModalScreen[bool]):
    """A question that `y` answers with yes, and everything else with no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape,q", "answer(False)", "no"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._question, markup=False)
            yield Static("y yes   n no", markup=False, classes="keys")

    def action_answer(self, is_yes: bool) -> None:
        self.dismiss(is_yes)


class AskReason(ModalScreen[str | None]):
    """A question for a reason; without one nothing is done."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "do nothing")]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._question, markup=False)
            yield Input(placeholder="reason, shown to other users", max_length=200, compact=True)
            yield Static("Enter do it   Esc leave it", markup=False, classes="keys")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if reason := event.value.strip():
            self.dismiss(reason)

    def action_leave(self) -> None:
        self.dismiss(None)
