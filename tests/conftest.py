"""What holds for all tests: Hypothesis does not judge how fast this machine is.

Its deadline and its health check for slow data are about time; on a busy machine they fail
tests that are right.
"""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "headrace", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("headrace")
