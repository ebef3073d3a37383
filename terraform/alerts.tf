# What wakes somebody. Each policy has a paragraph of its own name in docs/operations.md. Sums and ratios are PromQL, because a distribution
# cannot be thresholded as a sum; a daily run is counted with missing data taken as a fault, because absence is watched for 23.5 h at most.

locals {
  log_metric = { for key, m in google_logging_metric.this : key => "resource.type=\"cloud_run_revision\" AND metric.type=\"logging.googleapis.com/user/${m.name}\"" }

  # PromQL's name of a log-based metric; a distribution has _sum and _count.
  prom     = { for key, m in google_logging_metric.this : key => "logging_googleapis_com:user_${m.name}" }
  revision = "monitored_resource=\"cloud_run_revision\""

  # The customers' functions, as the load balancer and Cloud Run name them.
  service_names = join("|", [for key in keys(local.services) : local.names[key]])
  job_names     = join(" OR ", [for key in keys(local.internal) : "\"${local.names[key]}\""])

  # over: the value at the percentile, or the count, is above the threshold in every window of the duration.
  # missing: fewer than one in the window, or no data at all.
  threshold_alerts = merge({
    events_dead = {
      summary   = "An event failed five times and was set aside; its effect is missing."
      severity  = "ERROR"
      filter    = local.log_metric.events_dead_total
      aligner   = "ALIGN_DELTA"
      reducer   = "REDUCE_SUM"
      window    = 300
      duration  = 0
      over      = 0
      recipient = "on_call"
    }
    dead_letters = {
      summary   = "A message could not be delivered and waits in a dead-letter subscription."
      severity  = "ERROR"
      filter    = "resource.type=\"pubsub_subscription\" AND metric.type=\"pubsub.googleapis.com/subscription/num_undelivered_messages\" AND resource.label.subscription_id=monitoring.regex.full_match(\".*-dead-reader\")"
      aligner   = "ALIGN_MAX"
      reducer   = "REDUCE_SUM"
      window    = 300
      duration  = 0
      over      = 0
      recipient = "on_call"
    }
    outbox_age = {
      summary   = "Events that are due have waited for more than 15 minutes."
      severity  = "ERROR"
      filter    = local.log_metric.outbox_oldest_seconds
      aligner   = "ALIGN_PERCENTILE_99"
      reducer   = "REDUCE_MAX"
      window    = 300
      duration  = 300
      over      = 900
      recipient = "on_call"
    }
    relay_missing = {
      summary   = "relay_events has not reported for half an hour; it should each minute."
      severity  = "ERROR"
      filter    = local.log_metric.relay_runs
      aligner   = "ALIGN_DELTA"
      reducer   = "REDUCE_SUM"
      window    = 1200
      duration  = 600
      missing   = true
      recipient = "on_call"
    }
    turn_latency = {
      summary   = "One turn in twenty takes longer than 30 seconds."
      severity  = "WARNING"
      filter    = local.log_metric.turn_latency_ms
      aligner   = "ALIGN_DELTA"
      reducer   = "REDUCE_PERCENTILE_95"
      window    = 600
      duration  = 600
      over      = 30000
      recipient = "on_call"
    }
    first_token_latency = {
      summary   = "One turn in twenty shows nothing for more than 8 seconds."
      severity  = "WARNING"
      filter    = local.log_metric.time_to_first_token_ms
      aligner   = "ALIGN_DELTA"
      reducer   = "REDUCE_PERCENTILE_95"
      window    = 600
      duration  = 600
      over      = 8000
      recipient = "on_call"
    }
    nightly_missing = {
      summary   = "nightly_refresh has not rolled up for a day."
      severity  = "ERROR"
      filter    = local.log_metric.nightly_runs
      aligner   = "ALIGN_DELTA"
      reducer   = "REDUCE_SUM"
      window    = 86400
      duration  = 3600
      missing   = true
      recipient = "on_call"
    }
    site_data_old = {
      summary   = "A site's data is older than ${var.owners.old_data_hours} hours; its owner is told so in every answer."
      severity  = "WARNING"
      filter    = local.log_metric.site_data_age_hours
      aligner   = "ALIGN_PERCENTILE_99"
      reducer   = "REDUCE_MAX"
      window    = 86400
      duration  = 0
      over      = var.owners.old_data_hours
      recipient = "on_call"
    }
    database_connections = {
      summary   = "The database has used 80 % of its connections."
      severity  = "ERROR"
      filter    = "resource.type=\"cloudsql_database\" AND metric.type=\"cloudsql.googleapis.com/database/postgresql/num_backends\""
      aligner   = "ALIGN_MAX"
      reducer   = "REDUCE_SUM"
      window    = 300
      duration  = 300
      over      = floor(0.8 * var.database.max_connections)
      recipient = "on_call"
    }
    database_disk = {
      summary   = "The database has used 80 % of the disk that it may grow to."
      severity  = "WARNING"
      filter    = "resource.type=\"cloudsql_database\" AND metric.type=\"cloudsql.googleapis.com/database/disk/bytes_used\""
      aligner   = "ALIGN_MAX"
      reducer   = "REDUCE_MAX"
      window    = 3600
      duration  = 0
      over      = floor(0.8 * var.database.disk_limit_gb * 1024 * 1024 * 1024)
      recipient = "on_call"
    }
    }, var.warehouse.export ? {
    export_behind = {
      summary   = "No day has been loaded into BigQuery for a day; PostgreSQL keeps what is not exported for seven days at most."
      severity  = "ERROR"
      filter    = local.log_metric.exports_loaded
      aligner   = "ALIGN_DELTA"
      reducer   = "REDUCE_SUM"
      window    = 86400
      duration  = 3600
      missing   = true
      recipient = "on_call"
    }
  } : {})

  query_alerts = {
    cutover_rows = {
      summary   = "Retrieval events come at more than ${var.owners.rows_a_day_notice} rows a day, 80 % of the agreed threshold for the move to BigQuery."
      severity  = "WARNING"
      recipient = "knowledge"
      queries = {
        # What the nightly run measured (7-day mean) is the truth; the sum of the day sees it coming.
        "mean of the last seven days" = "sum(increase(${local.prom.cutover_rows_per_day}_sum{${local.revision}}[24h])) / sum(increase(${local.prom.cutover_rows_per_day}_count{${local.revision}}[24h])) > ${var.owners.rows_a_day_notice}"
        "rows of the last day"        = "sum(increase(${local.prom.retrieval_events_persisted_total}_sum{${local.revision}}[24h])) > ${var.owners.rows_a_day_notice}"
      }
    }
    error_ratio = {
      summary   = "More than 5 % of requests or of turns fail."
      severity  = "CRITICAL"
      recipient = "on_call"
      queries = {
        "requests" = "sum(rate(run_googleapis_com:request_count{${local.revision},response_code_class=\"5xx\",service_name=~\"${local.service_names}\"}[10m])) / sum(rate(run_googleapis_com:request_count{${local.revision},service_name=~\"${local.service_names}\"}[10m])) > 0.05"
        "turns"    = "sum(rate(${local.prom.turns_total}{${local.revision},outcome=\"failed\"}[10m])) / sum(rate(${local.prom.turns_total}{${local.revision}}[10m])) > 0.05"
      }
    }
    wrap_up_cost = {
      summary   = "Wrap-ups cost more than 10 % of the day's model spend."
      severity  = "WARNING"
      recipient = "on_call"
      queries = {
        "share of a day" = "sum(increase(${local.prom.wrap_up_cost_usd}_sum{${local.revision}}[24h])) / sum(increase(${local.prom.llm_cost_usd}_sum{${local.revision}}[24h])) > 0.10 and sum(increase(${local.prom.llm_cost_usd}_sum{${local.revision}}[24h])) > 1"
      }
    }
    model_spend = {
      summary   = "The day's model spend is at 80 % of the sum at which calls stop."
      severity  = "ERROR"
      recipient = "on_call"
      queries = {
        "spend of a day" = "sum(increase(${local.prom.llm_cost_usd}_sum{${local.revision}}[24h])) > ${0.8 * var.models.daily_spend_stop_usd}"
      }
    }
    undated_recall = {
      summary   = "More than 1 % of the day's answers gave an old number without its date."
      severity  = "WARNING"
      recipient = "on_call"
      queries = {
        "share of a day" = "sum(increase(${local.prom.undated_recall_total}_sum{${local.revision}}[24h])) / sum(increase(${local.prom.turns_total}{${local.revision}}[24h])) > 0.01"
      }
    }
  }

  channels = {
    on_call   = [google_monitoring_notification_channel.on_call.id]
    knowledge = [google_monitoring_notification_channel.knowledge.id]
  }
}

resource "google_monitoring_notification_channel" "on_call" {
  display_name = "On call"
  type         = "email"
  labels       = { email_address = var.owners.on_call }
  depends_on   = [google_project_service.this]
}

resource "google_monitoring_notification_channel" "knowledge" {
  display_name = "${var.owners.knowledge_name}, who reviews the knowledge base each week"
  type         = "email"
  labels       = { email_address = var.owners.knowledge_email }
  depends_on   = [google_project_service.this]
}

resource "google_monitoring_alert_policy" "threshold" {
  for_each              = local.threshold_alerts
  display_name          = each.key
  combiner              = "OR"
  severity              = each.value.severity
  notification_channels = local.channels[each.value.recipient]

  conditions {
    display_name = each.key

    condition_threshold {
      filter                  = each.value.filter
      comparison              = can(each.value.missing) ? "COMPARISON_LT" : "COMPARISON_GT"
      threshold_value         = can(each.value.missing) ? 1 : each.value.over
      duration                = "${each.value.duration}s"
      evaluation_missing_data = can(each.value.missing) ? "EVALUATION_MISSING_DATA_ACTIVE" : null

      aggregations {
        alignment_period     = "${each.value.window}s"
        per_series_aligner   = each.value.aligner
        cross_series_reducer = each.value.reducer
      }
    }
  }

  alert_strategy {
    auto_close = "604800s"
  }

  documentation {
    subject   = "${var.environment}: ${each.key}"
    content   = "${each.value.summary} What to do: docs/operations.md, \"Alert: ${each.key}\"."
    mime_type = "text/markdown"
  }

  lifecycle {
    precondition {
      condition     = each.value.window <= 90000 && each.value.window + each.value.duration <= 90000 && each.value.window % 60 == 0
      error_message = "${each.key}: window and duration together are 25 hours at most, in whole minutes."
    }
  }

  depends_on = [time_sleep.metrics]
}

resource "google_monitoring_alert_policy" "query" {
  for_each              = local.query_alerts
  display_name          = each.key
  combiner              = "OR"
  severity              = each.value.severity
  notification_channels = local.channels[each.value.recipient]

  dynamic "conditions" {
    for_each = each.value.queries
    content {
      display_name = conditions.key

      condition_prometheus_query_language {
        query               = conditions.value
        duration            = "300s"
        evaluation_interval = "300s"
        # Nothing has been logged yet when the first deployment makes this.
        disable_metric_validation = true
      }
    }
  }

  alert_strategy {
    auto_close = "604800s"
  }

  documentation {
    subject   = "${var.environment}: ${each.key}"
    content   = "${each.value.summary} What to do: docs/operations.md, \"Alert: ${each.key}\"."
    mime_type = "text/markdown"
  }

  depends_on = [time_sleep.metrics]
}

resource "google_monitoring_alert_policy" "job_errors" {
  display_name          = "job_errors"
  combiner              = "OR"
  severity              = "ERROR"
  notification_channels = local.channels.on_call

  conditions {
    display_name = "an error line of a job or an event function"

    condition_matched_log {
      filter = "resource.type=\"cloud_run_revision\" AND severity>=ERROR AND resource.labels.service_name=(${local.job_names})"
    }
  }

  alert_strategy {
    auto_close = "604800s"
    notification_rate_limit {
      period = "3600s"
    }
  }

  documentation {
    subject   = "${var.environment}: job_errors"
    content   = "A job or an event function logged an error. What to do: docs/operations.md, \"Alert: job_errors\"."
    mime_type = "text/markdown"
  }
}
