# Where operators run the `memberintel` command: a job inside the network, with its arguments given on each execution.
#   gcloud run jobs execute memberintel-operate --region REGION --wait --args=dead-letters,list

resource "google_service_account" "operator" {
  account_id   = "operator"
  display_name = "Operators' commands: tenants, knowledge, site data, dead letters, erasure"
  depends_on   = [google_project_service.this]
}

resource "google_sql_user" "operator" {
  name            = trimsuffix(google_service_account.operator.email, ".gserviceaccount.com")
  instance        = google_sql_database_instance.main.name
  type            = "CLOUD_IAM_SERVICE_ACCOUNT"
  database_roles  = ["memberintel_app", "memberintel_jobs", "memberintel_owner"]
  deletion_policy = "ABANDON"
  depends_on      = [google_cloud_run_v2_job.migrate]
}

# What is to be loaded (site exports, articles) is put here and read under /uploads; it goes after a week.
resource "google_storage_bucket" "uploads" {
  #checkov:skip=CKV_GCP_62:logging.tf logs reads and writes of every bucket as audit entries
  #checkov:skip=CKV_GCP_78:customers' exports are to be gone after a week, earlier versions included
  name                        = "${var.project_id}-uploads"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  lifecycle_rule {
    condition {
      age = 7
    }
    action {
      type = "Delete"
    }
  }
}

resource "google_cloud_run_v2_job" "operate" {
  name                = "memberintel-operate"
  location            = var.region
  deletion_protection = false

  template {
    task_count = 1
    template {
      service_account       = google_service_account.operator.email
      max_retries           = 0
      timeout               = "3600s"
      execution_environment = "EXECUTION_ENVIRONMENT_GEN2"

      vpc_access {
        egress = "PRIVATE_RANGES_ONLY"
        network_interfaces {
          network    = google_compute_network.main.id
          subnetwork = google_compute_subnetwork.serverless.id
        }
      }

      volumes {
        name = "uploads"
        gcs {
          bucket    = google_storage_bucket.uploads.name
          read_only = true
        }
      }

      containers {
        image   = local.image
        command = ["memberintel"]
        args    = ["--help"]

        resources {
          limits = { cpu = "1", memory = "1Gi" }
        }

        volume_mounts {
          name       = "uploads"
          mount_path = "/uploads"
        }

        dynamic "env" {
          for_each = merge(local.settings, { for name, value in local.model_settings : name => value if value != "" }, {
            MEMBERINTEL_CLOUD_SQL_USER = google_sql_user.operator.name
            MEMBERINTEL_POOL_SIZE      = tostring(local.operator_connections)
            MEMBERINTEL_ERASURE_LEDGER = local.ledger
            # An index over the knowledge base and the search after an erasure read whole tables.
            MEMBERINTEL_STATEMENT_TIMEOUT_MS = "1500000"
          })
          content {
            name  = env.key
            value = env.value
          }
        }
      }
    }
  }

  depends_on = [google_project_iam_member.database]
}

resource "google_cloud_run_v2_job_iam_member" "operators" {
  for_each = toset(var.owners.operators)
  name     = google_cloud_run_v2_job.operate.name
  location = google_cloud_run_v2_job.operate.location
  role     = "roles/run.jobsExecutorWithOverrides"
  member   = each.value
}

resource "google_storage_bucket_iam_member" "operators_upload" {
  for_each = toset(var.owners.operators)
  bucket   = google_storage_bucket.uploads.name
  role     = "roles/storage.objectUser"
  member   = each.value
}

resource "google_storage_bucket_iam_member" "operator" {
  for_each = { uploads = "roles/storage.objectViewer", ledger = "roles/storage.objectUser" }
  bucket   = { uploads = google_storage_bucket.uploads.name, ledger = google_storage_bucket.ledger.name }[each.key]
  role     = each.value
  member   = google_service_account.operator.member
}

resource "google_project_iam_member" "operator" {
  for_each = { models = google_project_iam_custom_role.model_caller.name, warehouse = google_project_iam_custom_role.warehouse_jobs.name }
  project  = var.project_id
  role     = each.value
  member   = google_service_account.operator.member
}

resource "google_bigquery_dataset_iam_member" "operator" {
  dataset_id = google_bigquery_dataset.warehouse.dataset_id
  role       = "roles/bigquery.dataEditor"
  member     = google_service_account.operator.member
}

# A dead event that is replayed is published again.
resource "google_pubsub_topic_iam_member" "operator" {
  for_each = toset([for f in local.events : f.topic])
  topic    = google_pubsub_topic.this[each.key].name
  role     = "roles/pubsub.publisher"
  member   = google_service_account.operator.member
}

resource "google_pubsub_subscription_iam_member" "operators_read" {
  for_each     = { for pair in setproduct(local.dead, toset(var.owners.operators)) : "${pair[0]}-${pair[1]}" => pair }
  subscription = google_pubsub_subscription.dead_reader[each.value[0]].name
  role         = "roles/pubsub.subscriber"
  member       = each.value[1]
}
