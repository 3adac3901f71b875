"""A promise that was not kept: which checker saw it, and the sentence that does not hold."""

from __future__ import annotations


class Violation(AssertionError):
    """`checker` names who saw it.

    One of accepted, one-commit, one-run, devices, ledger, heals, replay, epochs, durable; of the office and of leases,
    leader, generations, brake; or, of gangs and urgent jobs, gang-whole, preemption, nomination, restarts;
    of nodes, limits (of time) and standstill.
    """

    def __init__(self, checker: str, sentence: str) -> None:
        super().__init__(f"{checker}: {sentence}")
        self.checker = checker
        self.sentence = sentence
