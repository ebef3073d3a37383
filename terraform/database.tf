# PostgreSQL: reachable from the network only, entered by IAM identities only.

resource "google_sql_database_instance" "main" {
  #checkov:skip=CKV_GCP_108:connections come through the connector and have no host name to look up
  #checkov:skip=CKV_GCP_109:a statement that failed carries what a customer wrote
  #checkov:skip=CKV2_GCP_13:query insights measures durations without a log line a statement
  name                = "memberintel"
  region              = var.region
  database_version    = "POSTGRES_18"
  deletion_protection = var.database.deletion_protection

  settings {
    tier                        = var.database.tier
    edition                     = "ENTERPRISE"
    availability_type           = var.database.high_availability ? "REGIONAL" : "ZONAL"
    deletion_protection_enabled = var.database.deletion_protection
    disk_autoresize             = true
    disk_autoresize_limit       = var.database.disk_limit_gb
    connector_enforcement       = "REQUIRED"

    ip_configuration {
      ipv4_enabled    = false
      private_network = google_compute_network.main.id
      ssl_mode        = "TRUSTED_CLIENT_CERTIFICATE_REQUIRED"
    }

    backup_configuration {
      enabled                        = true
      start_time                     = "00:30"
      point_in_time_recovery_enabled = true
      transaction_log_retention_days = var.database.log_days
      backup_retention_settings {
        retained_backups = var.database.backups
        retention_unit   = "COUNT"
      }
    }

    maintenance_window {
      day          = 7
      hour         = 6
      update_track = "stable"
    }

    insights_config {
      query_insights_enabled  = true
      record_application_tags = true
      record_client_address   = false
    }

    database_flags {
      name  = "cloudsql.iam_authentication"
      value = "on"
    }
    database_flags {
      name  = "cloudsql.enable_pgaudit"
      value = "on"
    }
    database_flags {
      name  = "pgaudit.log"
      value = "ddl,role"
    }
    database_flags {
      name  = "max_connections"
      value = tostring(var.database.max_connections)
    }
    database_flags {
      name  = "idle_in_transaction_session_timeout"
      value = "60000"
    }
    database_flags {
      name  = "log_connections"
      value = "on"
    }
    database_flags {
      name  = "log_disconnections"
      value = "on"
    }
    database_flags {
      name  = "log_lock_waits"
      value = "on"
    }
    database_flags {
      name  = "log_checkpoints"
      value = "on"
    }
    # Statements, parameters and details of errors carry what customers wrote: it is logged that one was slow or failed, never what it said.
    database_flags {
      name  = "log_statement"
      value = "ddl"
    }
    database_flags {
      name  = "log_min_error_statement"
      value = "panic"
    }
    database_flags {
      name  = "log_error_verbosity"
      value = "terse"
    }
  }

  lifecycle {
    prevent_destroy = true
    precondition {
      condition     = var.environment != "prod" || (var.database.deletion_protection && var.database.high_availability)
      error_message = "The production database is highly available and protected against deletion."
    }
  }

  depends_on = [google_service_networking_connection.services]
}

resource "google_sql_database" "memberintel" {
  name            = "memberintel"
  instance        = google_sql_database_instance.main.name
  deletion_policy = "ABANDON"
}

# Group roles hold the privileges (the migration job makes them); a function is a member of exactly one.
resource "google_sql_user" "function" {
  for_each        = local.functions
  name            = local.database_users[each.key]
  instance        = google_sql_database_instance.main.name
  type            = "CLOUD_IAM_SERVICE_ACCOUNT"
  database_roles  = [each.value.role]
  deletion_policy = "ABANDON"
  depends_on      = [google_cloud_run_v2_job.migrate]
}

# Makes roles, extensions and tables. No function can act as it.
resource "google_sql_user" "migrator" {
  name            = trimsuffix(google_service_account.migrator.email, ".gserviceaccount.com")
  instance        = google_sql_database_instance.main.name
  type            = "CLOUD_IAM_SERVICE_ACCOUNT"
  database_roles  = ["cloudsqlsuperuser"]
  deletion_policy = "ABANDON"
}

locals {
  # Cloud SQL knows a service account without the end of its address.
  database_users = { for key, account in google_service_account.function : key => trimsuffix(account.email, ".gserviceaccount.com") }
}
