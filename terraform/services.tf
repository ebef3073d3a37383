# chat, brain and admin: one image, told apart by FUNCTION_SOURCE, reachable through the load balancer only.

resource "google_cloud_run_v2_service" "this" {
  for_each            = local.services
  name                = local.names[each.key]
  location            = var.region
  ingress             = "INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER"
  deletion_protection = var.environment == "prod"

  # For all revisions together: while two share the traffic the database still bears them.
  scaling {
    min_instance_count = local.instances[each.key].min
    max_instance_count = local.instances[each.key].max
  }

  template {
    service_account                  = google_service_account.function[each.key].email
    timeout                          = "${each.value.timeout}s"
    max_instance_request_concurrency = each.value.concurrency
    execution_environment            = "EXECUTION_ENVIRONMENT_GEN2"

    scaling {
      max_instance_count = local.instances[each.key].max
    }

    vpc_access {
      egress = "PRIVATE_RANGES_ONLY"
      network_interfaces {
        network    = google_compute_network.main.id
        subnetwork = google_compute_subnetwork.serverless.id
      }
    }

    containers {
      image = local.image

      resources {
        limits            = { cpu = each.value.cpu, memory = each.value.memory }
        cpu_idle          = true
        startup_cpu_boost = true
      }

      ports {
        container_port = 8080
      }

      startup_probe {
        period_seconds    = 2
        failure_threshold = 30
        tcp_socket {
          port = 8080
        }
      }

      dynamic "env" {
        for_each = local.env[each.key]
        content {
          name  = env.key
          value = env.value
        }
      }

      dynamic "env" {
        for_each = local.secret_env[each.key]
        content {
          name = env.key
          value_source {
            secret_key_ref {
              secret  = google_secret_manager_secret.this[env.value].secret_id
              version = "latest"
            }
          }
        }
      }
    }
  }

  # A release plans with the revision that serves: the new one gets the tag and no traffic, until the pipeline moves it over.
  dynamic "traffic" {
    for_each = contains(keys(var.serving), each.key) ? [var.serving[each.key]] : []
    content {
      type     = "TRAFFIC_TARGET_ALLOCATION_TYPE_REVISION"
      revision = traffic.value
      percent  = 100
    }
  }

  traffic {
    type    = "TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST"
    percent = contains(keys(var.serving), each.key) ? 0 : 100
    tag     = "candidate"
  }

  lifecycle {
    # A stream holds a thread for its whole life: more requests than threads would wait unseen.
    precondition {
      condition     = local.env[each.key].THREADS == tostring(each.value.concurrency) && each.value.concurrency > 1
      error_message = "${each.key}: THREADS equals the concurrency, and one thread alone would be a worker that is killed in mid-stream."
    }
  }

  depends_on = [
    google_cloud_run_v2_job.migrate,
    google_project_iam_member.database,
    google_secret_manager_secret_iam_member.reader,
    google_sql_user.function,
  ]
}

# The load balancer calls without an identity; who is calling is checked in the code, by token, and ingress admits nobody but it.
resource "google_cloud_run_v2_service_iam_member" "edge" {
  #checkov:skip=CKV_GCP_102:the load balancer has no identity to grant this to; ingress admits it alone and the code checks the caller's token
  for_each = local.services
  name     = google_cloud_run_v2_service.this[each.key].name
  location = google_cloud_run_v2_service.this[each.key].location
  role     = "roles/run.invoker"
  member   = "allUsers"

  lifecycle {
    replace_triggered_by = [google_cloud_run_v2_service.this[each.key].uid]
  }
}
