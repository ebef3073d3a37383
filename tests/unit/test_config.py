"""Settings that make no sense stop the start with a message that names them."""

from __future__ import annotations

import pytest

from common.config import read_settings
from common.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MEMBERINTEL_QUIET_MINUTES", "inf"),
        ("MEMBERINTEL_QUIET_MINUTES", "nan"),
        ("MEMBERINTEL_QUIET_MINUTES", "soon"),
        ("MEMBERINTEL_QUIET_MINUTES_ELSEWHERE", "1e300"),
        ("MEMBERINTEL_TURN_SECONDS", "inf"),
        ("MEMBERINTEL_MODEL_TIMEOUT_SECONDS", "inf"),
        ("MEMBERINTEL_OLD_DATA_HOURS", "1e300"),
        ("MEMBERINTEL_WRAP_UP_RETENTION_DAYS", "99999999999"),
        ("MEMBERINTEL_DAILY_SPEND_STOP_USD", "nan"),
        ("MEMBERINTEL_POOL_SIZE", "many"),
        ("MEMBERINTEL_ENVIRONMENT", "production"),
        ("MEMBERINTEL_NO_SUCH_SETTING", "1"),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        read_settings({name: value})


@pytest.mark.parametrize("name", ["MEMBERINTEL_OIDC_AUTHORIZATION_URL", "MEMBERINTEL_OIDC_TOKEN_URL"])
def test_half_a_sign_in_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="go together"):
        read_settings({name: "https://login.example.com/x"})
