"""The screen of all keys, opened by `?`."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

KEYS = """\
everywhere  1 2 3 Tab   devices, jobs, alarms
            q Esc       back; on devices, jobs and alarms q quits
            j k         down and up, as the arrows
devices     arrows      another GPU; Page Up, Page Down, Home, End
            Enter o     why of the job on the GPU, output of its task
            c g         colour by holder, user, queue, …; racks
            d r         drain the node, resume it
jobs        / w         filter; which: running, waiting, ended
            s S         sort by another column, in the other direction
            Enter o     why, output
one job     w s t o     why, story, tasks, output
devices,    x           cancel the job
jobs and    h           hold the job, or release it
one job     p           pause the task, or resume it
output      f e g G     follow or not, stdout or stderr, first, last

Each change is asked about first."""


class KeysScreen(ModalScreen[None]):
    """What each key does."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,question_mark,enter", "dismiss", "back")]

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog keys-dialog"):
            yield Static(KEYS, markup=False)
