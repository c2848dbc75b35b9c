"""How long the machine runs: under a minute, or as long as `--hypothesis-profile=deep` says."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "deep", max_examples=1500, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
