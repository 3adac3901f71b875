"""A broken promise: the checker that found it, and what does not hold."""

from __future__ import annotations


class Violation(AssertionError):
    """`checker` names the check.

    One of accepted, one-commit, one-run, devices, ledger, heals, replay, epochs, durable; for leadership and leases
    leader, generations, brake; for gangs and urgent jobs gang-whole, preemption, nomination, restarts; for nodes
    limits (of time), standstill, lanes and elastic.
    """

    def __init__(self, checker: str, sentence: str) -> None:
        super().__init__(f"{checker}: {sentence}")
        self.checker = checker
        self.sentence = sentence
