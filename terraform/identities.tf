# One identity a function, with only what it needs, on the resource that it needs it on.

resource "google_service_account" "function" {
  for_each     = local.functions
  account_id   = "fn-${local.names[each.key]}"
  display_name = "Function ${each.key}"
  depends_on   = [google_project_service.this]
}

resource "google_service_account" "migrator" {
  account_id   = "migrator"
  display_name = "Migrates the database; the only identity that owns its tables"
}

resource "google_service_account" "pusher" {
  account_id   = "event-pusher"
  display_name = "As whom Pub/Sub calls the event functions"
}

resource "google_service_account" "scheduler" {
  account_id   = "job-starter"
  display_name = "As whom Scheduler calls the jobs"
}

resource "google_service_account" "builder" {
  account_id   = "function-builder"
  display_name = "As whom Cloud Functions builds the archives"
}

# ------------------------------------------------------------------------------------------------------------------------ database

locals {
  database_accounts = merge(google_service_account.function, { migrator = google_service_account.migrator, operator = google_service_account.operator })
  database_roles    = { client = "roles/cloudsql.client", login = "roles/cloudsql.instanceUser" }
}

# Cloud SQL has no policy of its own on an instance; the condition stands for it.
resource "google_project_iam_member" "database" {
  for_each = { for pair in setproduct(concat(keys(local.functions), ["migrator", "operator"]), keys(local.database_roles)) : "${pair[0]}-${pair[1]}" => pair }
  project  = var.project_id
  role     = local.database_roles[each.value[1]]
  member   = local.database_accounts[each.value[0]].member

  condition {
    title      = "this instance only"
    expression = "resource.name == \"projects/${var.project_id}/instances/${google_sql_database_instance.main.name}\" && resource.service == \"sqladmin.googleapis.com\""
  }
}

# -------------------------------------------------------------------------------------------------------------------------- models

# The ready-made roles of Vertex AI read and write data sets, pipelines and models as well.
resource "google_project_iam_custom_role" "model_caller" {
  role_id     = "memberintelModelCaller"
  title       = "Calls models"
  permissions = ["aiplatform.endpoints.predict"]
}

resource "google_project_iam_member" "models" {
  for_each = local.uses.models
  project  = var.project_id
  role     = google_project_iam_custom_role.model_caller.name
  member   = google_service_account.function[each.key].member
}

# ------------------------------------------------------------------------------------------------------------------------- warehouse

resource "google_project_iam_custom_role" "warehouse_jobs" {
  role_id     = "memberintelWarehouseJobs"
  title       = "Starts BigQuery jobs"
  permissions = ["bigquery.jobs.create"]
}

# The export loads days; erasure deletes a customer's rows.
resource "google_project_iam_member" "warehouse_jobs" {
  for_each = setunion(local.uses.export, local.uses.erasure)
  project  = var.project_id
  role     = google_project_iam_custom_role.warehouse_jobs.name
  member   = google_service_account.function[each.key].member
}

resource "google_bigquery_dataset_iam_member" "writer" {
  for_each   = setunion(local.uses.export, local.uses.erasure)
  dataset_id = google_bigquery_dataset.warehouse.dataset_id
  role       = "roles/bigquery.dataEditor"
  member     = google_service_account.function[each.key].member
}

# ------------------------------------------------------------------------------------------------------- secrets, topics, the ledger

resource "google_secret_manager_secret_iam_member" "reader" {
  for_each  = { for pair in flatten([for key, f in local.functions : [for s in f.secrets : { key = key, secret = s }]]) : "${pair.key}-${pair.secret}" => pair }
  secret_id = google_secret_manager_secret.this[each.value.secret].secret_id
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.function[each.value.key].member
}

resource "google_pubsub_topic_iam_member" "publisher" {
  for_each = { for pair in flatten([for key, f in local.functions : [for t in f.publishes : { key = key, topic = t }]]) : "${pair.key}-${pair.topic}" => pair }
  topic    = google_pubsub_topic.this[each.value.topic].name
  role     = "roles/pubsub.publisher"
  member   = google_service_account.function[each.value.key].member
}

# Who erases writes the ledger; who lets customers in refuses those that it names.
resource "google_storage_bucket_iam_member" "ledger" {
  for_each = local.uses.ledger
  bucket   = google_storage_bucket.ledger.name
  role     = contains(local.uses.erasure, each.key) ? "roles/storage.objectUser" : "roles/storage.objectViewer"
  member   = google_service_account.function[each.key].member
}

# --------------------------------------------------------------------------------------------------------------------------- builds

resource "google_project_iam_member" "builder_logs" {
  project = var.project_id
  role    = "roles/logging.logWriter"
  member  = google_service_account.builder.member
}

resource "google_storage_bucket_iam_member" "builder_source" {
  bucket = google_storage_bucket.source.name
  role   = "roles/storage.objectViewer"
  member = google_service_account.builder.member
}

resource "google_artifact_registry_repository_iam_member" "builder" {
  repository = google_artifact_registry_repository.images.repository_id
  location   = google_artifact_registry_repository.images.location
  role       = "roles/artifactregistry.writer"
  member     = google_service_account.builder.member
}
