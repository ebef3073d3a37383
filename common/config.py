"""The settings: one typed object, read once from the environment.

Every variable is named `MEMBERINTEL_<FIELD>`; an unknown or ill-typed one stops the start with a message that names it. Provider keys
keep the names their SDKs document (`ANTHROPIC_API_KEY`, `ANTHROPIC_BASE_URL`).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from common.errors import ConfigError

PREFIX = "MEMBERINTEL_"
_UNPREFIXED = {"anthropic_api_key": "ANTHROPIC_API_KEY", "anthropic_base_url": "ANTHROPIC_BASE_URL"}


class Settings(BaseModel):
    """Every setting of the running system. The README's table and `terraform/` name the same ones; a test compares them."""

    # Deferred: compiling fifty checks takes longer than importing most modules, and only `settings()` needs them.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    environment: Literal["local", "dev", "staging", "prod"] = Field(
        "local", description="Which environment this is"
    )

    database_url: str = Field(
        "", description="SQLAlchemy URL (`postgresql+pg8000://…`) without a role; local and tests"
    )
    cloud_sql_instance: str = Field(
        "", description="`project:region:instance`; replaces the URL in the cloud"
    )
    cloud_sql_database: str = Field("memberintel", description="Database name on that instance")
    cloud_sql_user: str = Field("", description="IAM user of this function's service account")
    pool_size: int = Field(5, ge=1, le=50, description="Database connections an instance may hold")
    statement_timeout_ms: int = Field(30_000, ge=100, description="Longest statement")

    oidc_issuer: str = Field("", description="Issuer of customers' ID tokens")
    oidc_audience: str = Field(
        "", description="Audience of customers' ID tokens: the client id of the console"
    )
    oidc_jwks_url: str = Field("", description="Where the issuer publishes its keys")
    oidc_authorization_url: str = Field(
        "", description="The issuer's sign-in page, for the console; empty: it offers no sign-in"
    )
    oidc_token_url: str = Field("", description="Where the console gives a code for an ID token")
    first_login: Literal["refuse", "create_free"] = Field(
        "refuse", description="What an unknown customer's first login does"
    )
    access_issuer: str = Field("", description="Cloudflare Access team domain, as https URL")
    access_audience: str = Field("", description="Audience tag of the Access application")
    access_jwks_url: str = Field("", description="The team's certificates")
    admin_emails: tuple[str, ...] = Field((), description="Who may use the admin surfaces; comma-separated")
    internal_issuer: str = Field(
        "https://accounts.google.com", description="Issuer of Pub/Sub's and Scheduler's tokens"
    )
    internal_audience: str = Field("", description="Audience of these tokens")
    internal_jwks_url: str = Field(
        "https://www.googleapis.com/oauth2/v3/certs", description="Keys of that issuer"
    )
    internal_callers: tuple[str, ...] = Field(
        (), description="Service accounts that may call internal functions; comma-separated"
    )

    pubsub_project: str = Field("", description="Project of the Pub/Sub topics; empty: the local dispatcher")
    local_dispatcher_url: str = Field("", description="Address of the local dispatcher")

    anthropic_api_key: SecretStr | None = Field(
        None, description="Key of the Claude API; without it the offline model answers"
    )
    anthropic_base_url: str = Field("", description="Another server that speaks the Messages API")
    vertex_project: str = Field("", description="Project for Gemini and embeddings on Vertex AI")
    vertex_location: str = Field("global", description="Location for Vertex AI")
    vertex_base_url: str = Field("", description="Another server that speaks the Vertex AI API")
    chat_pro_model: str = Field("", description="`provider:model` for a Pro tenant's turns")
    chat_free_model: str = Field("", description="`provider:model` for a Free tenant's turns")
    skill_model: str = Field("", description="`provider:model` for skills")
    wrap_up_model: str = Field("", description="`provider:model` for wrap-ups")
    chat_fallback_model: str = Field("", description="`provider:model` when the chat model is overloaded")
    skill_fallback_model: str = Field("", description="`provider:model` when the skill model is overloaded")
    wrap_up_fallback_model: str = Field(
        "", description="`provider:model` when the wrap-up model is overloaded"
    )
    model_timeout_seconds: float = Field(
        60.0, gt=0, le=3600, description="Longest wait for a model's next event"
    )
    daily_spend_stop_usd: float = Field(
        200.0, ge=0, description="Model spend a day, over all tenants, at which calls stop"
    )
    embedding_model: str = Field(
        "", description="`local`, `hashed` or a Vertex AI model; empty: the best that is installed"
    )

    recall_tool: bool = Field(True, description="Offer `recall_prior_tool_result` to the Advisor")
    recall_gate: bool = Field(
        False, description="Inject the recall block only when the query looks like recall"
    )
    quiet_minutes: float = Field(
        30.0, gt=0, le=10_080, description="Quiet time after which a session has ended"
    )
    quiet_minutes_elsewhere: float = Field(
        2.0, gt=0, le=10_080, description="The same once the user has started another conversation"
    )
    turn_seconds: float = Field(240.0, gt=1, le=3600, description="Longest turn")
    wrap_up_retention_days: int = Field(365, ge=1, le=36_500, description="How long wrap-ups are kept")
    old_data_hours: float = Field(
        48.0, gt=0, le=87_600, description="Age of a site's data that raises an alert"
    )
    retrieval_sink: Literal["postgres", "both"] = Field("postgres", description="Where retrieval events go")
    bigquery_dataset: str = Field("", description="`project.dataset` of the export; empty: no export")
    erasure_ledger: str = Field("", description="Where the erasure ledger is kept (path or gs:// object)")
    backup_days: int = Field(
        30, ge=0, description="Days until the last backup that holds an erased customer is gone"
    )
    cors_origins: tuple[str, ...] = Field((), description="Origins whose pages may call; comma-separated")
    requests_per_minute: int = Field(60, ge=1, description="Requests a user may make in a minute")

    @model_validator(mode="after")
    def _consistent(self) -> Settings:
        if self.environment != "local" and not self.pubsub_project:
            raise ValueError(f"{variable('pubsub_project')} is needed where environment is not local")
        if bool(self.oidc_authorization_url) != bool(self.oidc_token_url):
            raise ValueError(
                f"{variable('oidc_authorization_url')} and {variable('oidc_token_url')} go together"
            )
        return self


def variable(field: str) -> str:
    """The environment variable that sets `field`."""
    return _UNPREFIXED.get(field, PREFIX + field.upper())


def read_settings(environ: Mapping[str, str]) -> Settings:
    """The settings in `environ`. Raises ConfigError that names each wrong variable."""
    known = {variable(name): name for name in Settings.model_fields}
    unknown = sorted(k for k in environ if k.startswith(PREFIX) and k not in known)
    if unknown:
        raise ConfigError(f"Unknown setting {', '.join(unknown)}. The README lists the settings.")
    values: dict[str, object] = {}
    for key, name in known.items():
        if (text := environ.get(key, "")) != "":
            is_list = Settings.model_fields[name].annotation == tuple[str, ...]
            values[name] = tuple(p.strip() for p in text.split(",") if p.strip()) if is_list else text
    try:
        return Settings.model_validate(values)
    except ValidationError as exc:
        wrong = "; ".join(
            f"{variable(str(e['loc'][0])) if e['loc'] else 'settings'}: {e['msg']}"
            for e in exc.errors(include_input=False)
        )
        raise ConfigError(f"Wrong settings: {wrong}") from None


@functools.cache
def settings() -> Settings:
    """The settings of this process, read on first use."""
    return read_settings(os.environ)
