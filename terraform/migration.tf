# The expand-only migration, inside the network and as its own identity. A new image runs it before anything else gets that image; the
# release pipeline has then run it already, and repeating it changes nothing.

resource "google_cloud_run_v2_job" "migrate" {
  name                = "memberintel-migrate"
  location            = var.region
  deletion_protection = false
  run_execution_token = substr(lower(replace(var.image_tag, "/[^A-Za-z0-9-]/", "-")), 0, 20)

  template {
    task_count = 1
    template {
      service_account = google_service_account.migrator.email
      max_retries     = 0
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
