"""How hypothesis makes its examples: without a stop-watch, since a busy machine is no fault of the code."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("vmnest", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("vmnest")
