# How long logs are kept, and who looked at what: reads of data are logged for the resources that hold customers' data.

resource "google_logging_project_bucket_config" "default" {
  project        = var.project_id
  location       = "global"
  bucket_id      = "_Default"
  retention_days = var.retention.logs_days
  depends_on     = [google_project_service.this]
}

resource "google_project_iam_audit_config" "data" {
  for_each = toset(["secretmanager.googleapis.com", "cloudsql.googleapis.com", "bigquery.googleapis.com", "storage.googleapis.com"])
  project  = var.project_id
  service  = each.value

  audit_log_config {
    log_type = "DATA_READ"
  }

  audit_log_config {
    log_type = "DATA_WRITE"
  }
}
