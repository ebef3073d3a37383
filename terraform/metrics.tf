# The metrics read from the log. Event and field names are a contract with common/log.py, which a test holds; a metric cannot change its
# kind once it exists, only get another name.

locals {
  buckets = {
    tokens  = [25, 50, 100, 150, 200, 250, 300, 400, 600, 1000]
    rows    = [1, 2, 5, 10, 20, 50, 100, 500, 1000, 5000, 10000, 50000, 100000]
    per_day = [1000, 5000, 10000, 20000, 30000, 40000, 50000, 75000, 100000, 200000]
    usd     = [0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5]
    ms      = [100, 200, 400, 800, 1500, 3000, 5000, 8000, 12000, 20000, 30000, 60000, 120000, 240000]
    seconds = [0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 14400]
    hours   = [1, 6, 12, 24, 36, 48, 72, 96, 168, 336, 720]
  }

  # Without a value a metric counts lines; with one it holds the distribution of that field, whose sum PromQL can read. Labels are closed
  # sets: never an id, never a text.
  metrics = {
    tool_results_persisted_total         = { value = "row_count", buckets = "rows", labels = ["tool_name"] }
    tool_results_injection_tokens        = { value = "tokens", buckets = "tokens" }
    tool_results_retention_deletes_total = { value = "row_count", buckets = "rows" }
    retrieval_events_persisted_total     = { value = "row_count", buckets = "rows" }
    wrap_ups_generated_total             = { labels = ["trigger", "outcome"] }
    wrap_up_cost_usd                     = { value = "cost_usd", buckets = "usd", labels = ["model"] }
    llm_cost_usd                         = { value = "cost_usd", buckets = "usd", labels = ["task", "model"] }
    turns_total                          = { labels = ["route", "outcome"] }
    route_handovers_total                = { labels = ["from", "reason"] }
    undated_recall_total                 = { value = "count", buckets = "rows" }
    turn_latency_ms                      = { value = "ms", buckets = "ms", labels = ["route"] }
    time_to_first_token_ms               = { value = "ms", buckets = "ms", labels = ["route"] }
    outbox_oldest_seconds                = { value = "seconds", buckets = "seconds" }
    events_dead_total                    = { labels = ["event_type"] }
    rollup_seconds                       = { value = "seconds", buckets = "seconds" }
    export_rows_total                    = { value = "row_count", buckets = "rows", labels = ["table"] }
    cutover_rows_per_day                 = { value = "rows", buckets = "per_day" }
    site_data_age_hours                  = { value = "hours", buckets = "hours" }

    # How often something ran: a threshold cannot count the entries of a distribution.
    relay_runs     = { event = "outbox_oldest_seconds" }
    nightly_runs   = { event = "rollup_seconds" }
    exports_loaded = { event = "export_rows_total" }
  }
}

resource "google_logging_metric" "this" {
  for_each = local.metrics
  name     = each.key
  filter   = "resource.type=\"cloud_run_revision\" AND jsonPayload.event=\"${try(each.value.event, each.key)}\""

  value_extractor  = try("EXTRACT(jsonPayload.${each.value.value})", null)
  label_extractors = { for label in try(each.value.labels, []) : label => "EXTRACT(jsonPayload.${label})" }

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = can(each.value.value) ? "DISTRIBUTION" : "INT64"
    unit        = "1"

    dynamic "labels" {
      for_each = try(each.value.labels, [])
      content {
        key        = labels.value
        value_type = "STRING"
      }
    }
  }

  dynamic "bucket_options" {
    for_each = can(each.value.value) ? [local.buckets[each.value.buckets]] : []
    content {
      explicit_buckets {
        bounds = bucket_options.value
      }
    }
  }

  depends_on = [google_project_service.this]
}

# A metric is known to the alerts a little later than its creation returns.
resource "time_sleep" "metrics" {
  create_duration = "60s"
  triggers        = { metrics = join(",", keys(google_logging_metric.this)) }
}
