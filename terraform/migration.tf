# The expand-only migration, inside the network and as its own identity. Whatever needs the database waits for it, so that a first apply
# is whole. A later release has run it already (release/migrate.sh) when it is applied, and repeating it changes nothing.

resource "google_cloud_run_v2_job" "migrate" {
  name                = "memberintel-migrate"
  location            = var.region
  deletion_protection = false
  # Making or changing the job runs it; an execution's name can be used once.
  run_execution_token = substr(sha256(jsonencode([local.image, local.settings])), 0, 16)

  template {
    task_count = 1
    template {
      service_account = google_service_account.migrator.email
      max_retries     = 3 # a grant to a new identity takes a moment to reach the database
      timeout         = "1800s"

      vpc_access {
        egress = "PRIVATE_RANGES_ONLY"
        network_interfaces {
          network    = google_compute_network.main.id
          subnetwork = google_compute_subnetwork.serverless.id
        }
      }

      containers {
        image   = local.image
        command = ["memberintel"]
        args    = ["migrate"]

        resources {
          limits = { cpu = "1", memory = "512Mi" }
        }

        dynamic "env" {
          for_each = merge(local.settings, {
            MEMBERINTEL_CLOUD_SQL_USER       = google_sql_user.migrator.name
            MEMBERINTEL_POOL_SIZE            = tostring(local.migrator_connections)
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
