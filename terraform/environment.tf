# What each function is told: the settings of common/config.py, by name.

locals {
  settings = {
    MEMBERINTEL_ENVIRONMENT            = var.environment
    MEMBERINTEL_CLOUD_SQL_INSTANCE     = "${var.project_id}:${var.region}:${google_sql_database_instance.main.name}"
    MEMBERINTEL_CLOUD_SQL_DATABASE     = google_sql_database.memberintel.name
    MEMBERINTEL_PUBSUB_PROJECT         = var.project_id
    MEMBERINTEL_RETRIEVAL_SINK         = var.warehouse.sink
    MEMBERINTEL_BIGQUERY_DATASET       = var.warehouse.export ? "${var.project_id}.${google_bigquery_dataset.warehouse.dataset_id}" : ""
    MEMBERINTEL_WRAP_UP_RETENTION_DAYS = tostring(var.retention.wrap_ups_days)
    MEMBERINTEL_BACKUP_DAYS            = tostring(var.database.backups)
    MEMBERINTEL_OLD_DATA_HOURS         = tostring(var.owners.old_data_hours)
  }

  model_settings = {
    MEMBERINTEL_VERTEX_PROJECT         = var.project_id
    MEMBERINTEL_VERTEX_LOCATION        = var.models.vertex_location
    MEMBERINTEL_EMBEDDING_MODEL        = var.models.embedding
    MEMBERINTEL_CHAT_PRO_MODEL         = var.models.chat_pro
    MEMBERINTEL_CHAT_FREE_MODEL        = var.models.chat_free
    MEMBERINTEL_SKILL_MODEL            = var.models.skill
    MEMBERINTEL_WRAP_UP_MODEL          = var.models.wrap_up
    MEMBERINTEL_CHAT_FALLBACK_MODEL    = var.models.chat_fallback
    MEMBERINTEL_SKILL_FALLBACK_MODEL   = var.models.skill_fallback
    MEMBERINTEL_WRAP_UP_FALLBACK_MODEL = var.models.wrap_up_fallback
    MEMBERINTEL_DAILY_SPEND_STOP_USD   = tostring(var.models.daily_spend_stop_usd)
  }

  customer_settings = {
    MEMBERINTEL_OIDC_ISSUER            = var.identity.oidc_issuer
    MEMBERINTEL_OIDC_AUDIENCE          = var.identity.oidc_audience
    MEMBERINTEL_OIDC_JWKS_URL          = var.identity.oidc_jwks_url
    MEMBERINTEL_OIDC_AUTHORIZATION_URL = var.identity.oidc_authorization_url
    MEMBERINTEL_OIDC_TOKEN_URL         = var.identity.oidc_token_url
    MEMBERINTEL_FIRST_LOGIN            = var.identity.first_login
    MEMBERINTEL_CORS_ORIGINS           = "https://${var.domain}"
  }

  admin_settings = {
    MEMBERINTEL_ACCESS_ISSUER   = var.identity.access_issuer
    MEMBERINTEL_ACCESS_AUDIENCE = var.identity.access_audience
    MEMBERINTEL_ACCESS_JWKS_URL = var.identity.access_jwks_url
    MEMBERINTEL_ADMIN_EMAILS    = join(",", var.identity.admin_emails)
  }

  env = { for key, f in local.functions : key => merge(
    local.settings,
    {
      MEMBERINTEL_CLOUD_SQL_USER = local.database_users[key]
      MEMBERINTEL_POOL_SIZE      = tostring(f.pool_size)
      THREADS                    = tostring(f.concurrency)
    },
    contains(f.uses, "models") ? { for name, value in local.model_settings : name => value if value != "" } : {},
    contains(f.uses, "ledger") ? { MEMBERINTEL_ERASURE_LEDGER = local.ledger } : {},
    f.kind == "service" ? merge(local.customer_settings, local.admin_settings, { FUNCTION_SOURCE = "functions/${key}/main.py" }) : {
      MEMBERINTEL_INTERNAL_AUDIENCE = local.audiences[key]
      MEMBERINTEL_INTERNAL_CALLERS  = local.callers[key].email
    },
  ) }

  # Outside the database, so that a restored backup cannot bring back whom it names.
  ledger = "gs://${google_storage_bucket.ledger.name}/ledger.jsonl"

  secret_env = { for key, f in local.functions : key => { for s in f.secrets : upper(s) => s } }

  # The address that a function will have is known before it exists; its own resource could not name it to itself.
  audiences = { for key in keys(local.internal) : key => "https://${var.region}-${var.project_id}.cloudfunctions.net/${local.names[key]}" }
  callers   = { for key, f in local.internal : key => f.kind == "event" ? google_service_account.pusher : google_service_account.scheduler }
}
