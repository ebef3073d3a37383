# The clock. Each job is safe to repeat, so that a retry and a second firing cost nothing.

resource "google_cloud_scheduler_job" "this" {
  for_each         = local.jobs
  name             = local.names[each.key]
  region           = var.region
  schedule         = each.value.schedule
  time_zone        = "Etc/UTC"
  attempt_deadline = "${local.attempt_seconds[each.key]}s"

  http_target {
    http_method = "POST"
    uri         = google_cloudfunctions2_function.this[each.key].service_config[0].uri
    headers     = { "Content-Type" = "application/json" }
    body        = base64encode("{}")

    oidc_token {
      service_account_email = google_service_account.scheduler.email
      audience              = local.audiences[each.key]
    }
  }

  retry_config {
    retry_count          = each.value.retries
    min_backoff_duration = "10s"
    max_backoff_duration = "300s"
    max_doublings        = 5
  }

  lifecycle {
    precondition {
      condition     = local.attempt_seconds[each.key] > each.value.timeout && local.attempt_seconds[each.key] <= 1800
      error_message = "Scheduler must wait for ${each.key} to the end, and waits for 1800 seconds at most."
    }
  }

  depends_on = [google_cloud_run_v2_service_iam_member.caller]
}

locals {
  attempt_seconds = { for key, f in local.jobs : key => f.timeout + 30 }
}
