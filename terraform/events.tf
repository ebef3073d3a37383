# Topics, and the subscriptions that push to the functions. What cannot be delivered waits in a dead-letter topic that somebody reads.

locals {
  topics       = toset(["tool-results", "session-ended", "retrieval-events"])
  pubsub_agent = "serviceAccount:service-${data.google_project.this.number}@gcp-sa-pubsub.iam.gserviceaccount.com"

  # Only the sink `both` has somebody who listens to retrieval events.
  streamed = var.warehouse.sink == "both" ? toset(["retrieval-events"]) : toset([])
  dead     = setunion(toset([for f in local.events : f.topic]), local.streamed)

  subscriptions = merge(
    { for key, f in local.events : f.topic => google_pubsub_subscription.push[key].name },
    { for topic in local.streamed : topic => google_pubsub_subscription.stream[topic].name },
  )
}

# In a new project Pub/Sub's own account is there only once somebody has asked for it.
resource "google_project_service_identity" "pubsub" {
  provider   = google-beta
  service    = "pubsub.googleapis.com"
  depends_on = [google_project_service.this]
}

resource "google_pubsub_topic" "this" {
  #checkov:skip=CKV_GCP_83:messages carry an event's id and type only
  for_each                   = local.topics
  name                       = each.key
  message_retention_duration = "604800s"

  message_storage_policy {
    allowed_persistence_regions = [var.region]
  }

  depends_on = [google_project_service.this]
}

resource "google_pubsub_subscription" "push" {
  for_each                   = local.events
  name                       = "${each.value.topic}-${local.names[each.key]}"
  topic                      = google_pubsub_topic.this[each.value.topic].id
  ack_deadline_seconds       = 600
  message_retention_duration = "604800s"

  push_config {
    push_endpoint = google_cloudfunctions2_function.this[each.key].service_config[0].uri
    oidc_token {
      service_account_email = google_service_account.pusher.email
      audience              = local.audiences[each.key]
    }
  }

  retry_policy {
    minimum_backoff = "10s"
    maximum_backoff = "600s"
  }

  expiration_policy {
    ttl = ""
  }

  dead_letter_policy {
    dead_letter_topic     = google_pubsub_topic.dead[each.value.topic].id
    max_delivery_attempts = 10
  }

  lifecycle {
    # A push that is cut at the deadline is delivered again while the first still runs.
    precondition {
      condition     = each.value.timeout < 600
      error_message = "${each.key} must give up before its message is delivered again."
    }
  }

  depends_on = [google_cloud_run_v2_service_iam_member.caller]
}

# ----------------------------------------------------------------------------------------------------------------- retrieval events

resource "google_pubsub_subscription" "stream" {
  for_each                   = local.streamed
  name                       = "${each.key}-bigquery"
  topic                      = google_pubsub_topic.this[each.key].id
  ack_deadline_seconds       = 600
  message_retention_duration = "604800s"

  bigquery_config {
    table               = "${var.project_id}.${google_bigquery_dataset.warehouse.dataset_id}.${google_bigquery_table.this["retrieval_events_stream"].table_id}"
    use_table_schema    = true
    drop_unknown_fields = true
  }

  retry_policy {
    minimum_backoff = "10s"
    maximum_backoff = "600s"
  }

  expiration_policy {
    ttl = ""
  }

  dead_letter_policy {
    dead_letter_topic     = google_pubsub_topic.dead[each.key].id
    max_delivery_attempts = 10
  }

  depends_on = [google_bigquery_table_iam_member.stream]
}

resource "google_bigquery_table_iam_member" "stream" {
  for_each   = local.streamed
  dataset_id = google_bigquery_dataset.warehouse.dataset_id
  table_id   = google_bigquery_table.this["retrieval_events_stream"].table_id
  role       = "roles/bigquery.dataEditor"
  member     = local.pubsub_agent
  depends_on = [google_project_service_identity.pubsub]
}

# --------------------------------------------------------------------------------------------------------------------- dead letters

resource "google_pubsub_topic" "dead" {
  #checkov:skip=CKV_GCP_83:messages carry an event's id and type only
  for_each                   = local.dead
  name                       = "${each.key}-dead"
  message_retention_duration = "2678400s"

  message_storage_policy {
    allowed_persistence_regions = [var.region]
  }

  depends_on = [google_project_service.this]
}

# A dead letter without a reader is gone. Operators pull from here after they have looked at the outbox.
resource "google_pubsub_subscription" "dead_reader" {
  for_each                   = local.dead
  name                       = "${each.key}-dead-reader"
  topic                      = google_pubsub_topic.dead[each.key].id
  ack_deadline_seconds       = 600
  message_retention_duration = "2678400s"

  expiration_policy {
    ttl = ""
  }
}

# Pub/Sub itself moves a message: it publishes to the one topic and acknowledges on the other subscription.
resource "google_pubsub_topic_iam_member" "dead_publisher" {
  for_each   = local.dead
  topic      = google_pubsub_topic.dead[each.key].name
  role       = "roles/pubsub.publisher"
  member     = local.pubsub_agent
  depends_on = [google_project_service_identity.pubsub]
}

resource "google_pubsub_subscription_iam_member" "dead_acknowledger" {
  for_each     = local.dead
  subscription = local.subscriptions[each.key]
  role         = "roles/pubsub.subscriber"
  member       = local.pubsub_agent
  depends_on   = [google_project_service_identity.pubsub]
}
