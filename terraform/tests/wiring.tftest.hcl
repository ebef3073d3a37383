# What a plan of each environment must be, whatever the provider: run by `terraform test`, without an account.

mock_provider "google" {
  mock_data "google_project" {
    defaults = { number = "123456789012" }
  }
}

mock_provider "google-beta" {}

mock_provider "time" {}

variables {
  environment  = "prod"
  project_id   = "memberintel-test"
  region       = "europe-west1"
  domain       = "advisor.example.com"
  image_tag    = "0123456"
  state_bucket = "memberintel-test-state"
  database     = { tier = "db-custom-4-15360", high_availability = true, max_connections = 400, deletion_protection = true }
  identity = {
    oidc_issuer            = "https://login.example.com"
    oidc_audience          = "memberintel"
    oidc_jwks_url          = "https://login.example.com/keys"
    oidc_authorization_url = "https://login.example.com/authorize"
    oidc_token_url         = "https://login.example.com/token"
    access_issuer          = "https://example.cloudflareaccess.com"
    access_audience        = "memberintel-admin"
    access_jwks_url        = "https://example.cloudflareaccess.com/cdn-cgi/access/certs"
    admin_emails           = ["operations@example.com"]
  }
  models    = { embedding = "gemini-embedding-001", daily_spend_stop_usd = 200 }
  retention = { logs_days = 90 }
  warehouse = { location = "EU" }
  owners = {
    on_call         = "on-call@example.com"
    knowledge_name  = "Somebody"
    knowledge_email = "knowledge@example.com"
    approvers       = ["group:approvers@example.com"]
    operators       = ["group:operators@example.com"]
  }
  budget   = { billing_account = "000000-000000-000000", amount = 1000 }
  delivery = { repository = "projects/p/locations/l/connections/c/repositories/r", approval = true }
}

run "production_is_planned" {
  command = plan

  assert {
    condition     = length(google_cloud_run_v2_service.this) == 3 && length(google_cloudfunctions2_function.this) == 6
    error_message = "Three services share an image, six functions run from archives."
  }
  assert {
    condition     = google_sql_database_instance.main.settings[0].ip_configuration[0].ipv4_enabled == false
    error_message = "The database has no public address."
  }
  assert {
    condition     = google_cloudbuild_trigger.apply.approval_config[0].approval_required
    error_message = "A release to production waits for an approval."
  }
  assert {
    condition     = length(google_pubsub_subscription.stream) == 0
    error_message = "Nobody listens to retrieval events unless the sink is `both`."
  }
}

run "the_sink_both_streams_to_bigquery" {
  command = plan

  variables {
    warehouse = { location = "EU", sink = "both" }
  }

  assert {
    condition     = google_pubsub_subscription.stream["retrieval-events"].bigquery_config[0].use_table_schema
    error_message = "The stream is written by the table's schema."
  }
  assert {
    condition     = length(google_pubsub_subscription.dead_reader) == 3
    error_message = "The stream has a dead-letter topic with a reader, as the others have."
  }
}

run "a_release_gives_the_new_revision_no_traffic" {
  command = plan

  variables {
    serving = { chat = "chat-00001-abc" }
  }

  assert {
    condition     = google_cloud_run_v2_service.this["chat"].traffic[0].revision == "chat-00001-abc" && google_cloud_run_v2_service.this["chat"].traffic[0].percent == 100
    error_message = "What serves keeps serving."
  }
  assert {
    condition     = google_cloud_run_v2_service.this["chat"].traffic[1].percent == 0 && google_cloud_run_v2_service.this["chat"].traffic[1].tag == "candidate"
    error_message = "The new revision can be reached by its tag only."
  }
}

run "without_the_export_nothing_waits_for_it" {
  command = plan

  variables {
    warehouse = { location = "EU", export = false }
  }

  assert {
    condition     = !contains(keys(google_cloud_scheduler_job.this), "export_bigquery") && !contains(keys(google_monitoring_alert_policy.threshold), "export_behind")
    error_message = "A job that does not run is not missed."
  }
}

run "too_many_connections_are_found" {
  command = plan

  variables {
    instances = { chat = { max = 60 } }
  }

  expect_failures = [check.pool_arithmetic]
}

run "production_is_protected" {
  command = plan

  variables {
    database = { tier = "db-custom-4-15360", high_availability = true, max_connections = 400, deletion_protection = false }
  }

  expect_failures = [google_sql_database_instance.main]
}

run "production_is_approved" {
  command = plan

  variables {
    delivery = { repository = "projects/p/locations/l/connections/c/repositories/r", approval = false }
  }

  expect_failures = [google_cloudbuild_trigger.apply]
}

run "the_notice_of_the_cutover_goes_to_somebody" {
  command = plan

  variables {
    owners = { on_call = "on-call@example.com", knowledge_name = " ", knowledge_email = "knowledge@example.com", approvers = [], operators = [] }
  }

  expect_failures = [var.owners]
}

run "latest_is_no_tag" {
  command = plan

  variables {
    image_tag = "latest"
  }

  expect_failures = [var.image_tag]
}
