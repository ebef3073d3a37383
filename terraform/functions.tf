# The functions that events and the clock call: archives, named by what is in them.

locals {
  archives = { for key in keys(local.internal) : key => "${var.zips}/${key}.zip" }
}

# An archive that was not built is named so: the plan can be read without it, the apply fails.
resource "google_storage_bucket_object" "archive" {
  for_each = local.internal
  bucket   = google_storage_bucket.source.name
  name     = "${each.key}/${fileexists(local.archives[each.key]) ? filesha256(local.archives[each.key]) : "not-built"}.zip"
  source   = local.archives[each.key]
}

resource "google_cloudfunctions2_function" "this" {
  for_each    = local.internal
  name        = local.names[each.key]
  location    = var.region
  description = "Called by ${each.value.kind == "event" ? "topic ${each.value.topic}" : "Scheduler, ${each.value.schedule}"}"

  build_config {
    runtime           = "python312"
    entry_point       = "main"
    service_account   = google_service_account.builder.id
    docker_repository = google_artifact_registry_repository.images.id

    source {
      storage_source {
        bucket = google_storage_bucket.source.name
        object = google_storage_bucket_object.archive[each.key].name
      }
    }
  }

  service_config {
    service_account_email            = google_service_account.function[each.key].email
    available_cpu                    = each.value.cpu
    available_memory                 = each.value.memory
    timeout_seconds                  = each.value.timeout
    min_instance_count               = local.instances[each.key].min
    max_instance_count               = local.instances[each.key].max
    max_instance_request_concurrency = each.value.concurrency
    ingress_settings                 = "ALLOW_INTERNAL_ONLY"
    all_traffic_on_latest_revision   = true
    environment_variables            = local.env[each.key]
    direct_vpc_egress                = "VPC_EGRESS_PRIVATE_RANGES_ONLY"

    direct_vpc_network_interface {
      network    = google_compute_network.main.id
      subnetwork = google_compute_subnetwork.serverless.id
    }

    dynamic "secret_environment_variables" {
      for_each = local.secret_env[each.key]
      content {
        key        = secret_environment_variables.key
        project_id = var.project_id
        secret     = google_secret_manager_secret.this[secret_environment_variables.value].secret_id
        version    = "latest"
      }
    }
  }

  lifecycle {
    precondition {
      condition     = local.env[each.key].THREADS == tostring(each.value.concurrency) && each.value.concurrency > 1
      error_message = "${each.key}: THREADS equals the concurrency, and a second thread must be there to say that the first is busy."
    }
  }

  depends_on = [
    google_artifact_registry_repository_iam_member.builder,
    google_cloud_run_v2_job.migrate,
    google_project_iam_member.builder_logs,
    google_project_iam_member.database,
    google_secret_manager_secret_iam_member.reader,
    google_sql_user.function,
    google_storage_bucket_iam_member.builder_source,
  ]
}

# On the Cloud Run service beneath: the function's own policy does not take this role. A function made anew would lose the binding.
resource "google_cloud_run_v2_service_iam_member" "caller" {
  for_each = local.internal
  name     = google_cloudfunctions2_function.this[each.key].name
  location = google_cloudfunctions2_function.this[each.key].location
  role     = "roles/run.invoker"
  member   = local.callers[each.key].member

  lifecycle {
    replace_triggered_by = [google_cloudfunctions2_function.this[each.key].id]
  }
}
