"""Hypothesis profiles: `ci` for every run, `nightly` for the long one.

pytest tests/property --hypothesis-profile=nightly --timeout=0
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A deadline per example would only measure how busy the machine is.
settings.register_profile(
    "calm", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
_calm = settings.get_profile("calm")

settings.register_profile("ci", _calm, max_examples=50, stateful_step_count=50)
settings.register_profile("nightly", _calm, max_examples=5000, stateful_step_count=100)
settings.load_profile("ci")
