# BigQuery: a copy of ids and numbers by day, never of texts. Partitions go when PostgreSQL's rows go.

locals {
  tables = {
    retrieval_events        = { partition = "created_at", cluster = ["entry_id"], days = 90 }
    retrieval_events_stream = { partition = "created_at", cluster = ["entry_id"], days = 90 }
    entry_performance       = { partition = "day", cluster = ["entry_id"], days = var.retention.warehouse_days }
    usage_charges           = { partition = "created_at", cluster = ["tenant_id", "kind"], days = var.retention.warehouse_days }
    snapshots               = { partition = "created_at", cluster = ["tool_name", "user_id"], days = 180 }
    wrap_ups                = { partition = "created_at", cluster = ["tenant_id"], days = var.retention.wrap_ups_days }
  }
}

resource "google_bigquery_dataset" "warehouse" {
  #checkov:skip=CKV_GCP_81:Google's keys until counsel asks for our own (docs/go-live.md)
  dataset_id                 = "memberintel"
  location                   = var.warehouse.location
  description                = "Closed days of retrieval, cost and memory, for analysis"
  delete_contents_on_destroy = false
  max_time_travel_hours      = "48"

  depends_on = [google_project_service.this]
}

resource "google_bigquery_table" "this" {
  #checkov:skip=CKV_GCP_121:protected in prod; elsewhere a table may be made anew
  #checkov:skip=CKV_GCP_80:Google's keys until counsel asks for our own (docs/go-live.md)
  for_each                 = local.tables
  dataset_id               = google_bigquery_dataset.warehouse.dataset_id
  table_id                 = each.key
  schema                   = file("${path.module}/schemas/${each.key}.json")
  clustering               = each.value.cluster
  require_partition_filter = true
  deletion_protection      = var.environment == "prod"

  time_partitioning {
    type          = "DAY"
    field         = each.value.partition
    expiration_ms = each.value.days * 24 * 3600 * 1000
  }
}

resource "google_bigquery_dataset_iam_member" "reader" {
  for_each   = toset(var.warehouse.readers)
  dataset_id = google_bigquery_dataset.warehouse.dataset_id
  role       = "roles/bigquery.dataViewer"
  member     = each.value
}
