"""Questions before something is changed: yes or no, or a reason in words."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static


class Confirm(ModalScreen[bool]):
    """A question that `y` answers with yes; `n`, Esc and `q` with no."""

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
    """A question for a reason. If it is required, Enter without one does nothing; Esc answers None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "do nothing")]

    def __init__(self, question: str, is_required: bool) -> None:
        super().__init__()
        self._question = question
        self._is_required = is_required

    def compose(self) -> ComposeResult:
        said = (
            "reason, shown to other users" if self._is_required else "reason, shown to other users, or none"
        )
        with Vertical(classes="dialog"):
            yield Static(self._question, markup=False)
            yield Input(placeholder=said, max_length=200, compact=True)
            yield Static("Enter yes   Esc no", markup=False, classes="keys")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        reason = event.value.strip()
        if reason or not self._is_required:
            self.dismiss(reason)

    def action_leave(self) -> None:
        self.dismiss(None)
