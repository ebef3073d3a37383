# One page with every metric, made from the same map as the metrics: sums of what is counted, the 95th percentile of what is measured.

locals {
  # Sums tell more than percentiles where a line stands for several things or for money.
  summed = ["tool_results_persisted_total", "tool_results_retention_deletes_total", "retrieval_events_persisted_total", "wrap_up_cost_usd", "llm_cost_usd", "undated_recall_total", "export_rows_total"]

  charts = concat(
    [for key, m in local.metrics : {
      title = replace(key, "_", " ")
      query = (
        contains(local.summed, key) ? "sum${local.by[key]}(increase(${local.prom[key]}_sum{${local.revision}}[1h]))" :
        can(m.value) ? "histogram_quantile(0.95, sum by (le) (increase(${local.prom[key]}_bucket{${local.revision}}[1h])))" :
        "sum${local.by[key]}(increase(${local.prom[key]}{${local.revision}}[1h]))"
      )
    }],
    [
      { title = "requests by status", query = "sum by (service_name, response_code_class) (rate(run_googleapis_com:request_count{${local.revision}}[5m]))" },
      { title = "instances", query = "sum by (service_name) (run_googleapis_com:container_instance_count{${local.revision}})" },
      { title = "database connections", query = "sum(cloudsql_googleapis_com:database_postgresql_num_backends)" },
      { title = "undelivered messages", query = "sum by (subscription_id) (pubsub_googleapis_com:subscription_num_undelivered_messages)" },
    ],
  )

  by = { for key, m in local.metrics : key => length(try(m.labels, [])) > 0 ? " by (${join(", ", m.labels)}) " : "" }
}

resource "google_monitoring_dashboard" "memberintel" {
  dashboard_json = jsonencode({
    displayName = "MemberIntel"
    mosaicLayout = {
      columns = 12
      tiles = [for i, chart in local.charts : {
        xPos   = i % 3 * 4
        yPos   = floor(i / 3) * 4
        width  = 4
        height = 4
        widget = {
          title = chart.title
          xyChart = {
            dataSets = [{ plotType = "LINE", timeSeriesQuery = { prometheusQuery = chart.query } }]
          }
        }
      }]
    }
  })

  depends_on = [time_sleep.metrics]
}
