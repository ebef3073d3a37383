# Cloud Build: one identity reads and plans, another applies exactly what was planned. This file and the custom roles are changed by a person,
# not by a release: the applying identity may not widen its own rights.

locals {
  # Reading every kind of resource, and no data: a basic viewer could read the buckets and BigQuery.
  plan_roles = [
    "roles/artifactregistry.reader",
    "roles/bigquery.metadataViewer",
    "roles/browser",
    "roles/cloudbuild.builds.viewer",
    "roles/cloudfunctions.viewer",
    "roles/cloudscheduler.viewer",
    "roles/cloudsql.viewer",
    "roles/compute.networkViewer",
    "roles/compute.viewer",
    "roles/iam.securityReviewer",
    "roles/logging.viewer",
    "roles/logging.logWriter",
    "roles/monitoring.viewer",
    "roles/pubsub.viewer",
    "roles/run.viewer",
    "roles/secretmanager.viewer",
    "roles/serviceusage.serviceUsageConsumer",
    "roles/storage.bucketViewer",
  ]

  apply_roles = [
    "roles/artifactregistry.admin",
    "roles/bigquery.dataOwner",
    "roles/cloudbuild.builds.editor",
    "roles/cloudfunctions.developer",
    "roles/cloudscheduler.admin",
    "roles/cloudsql.admin",
    "roles/compute.loadBalancerAdmin",
    "roles/compute.networkAdmin",
    "roles/compute.securityAdmin",
    "roles/iam.roleViewer",
    "roles/iam.serviceAccountAdmin",
    "roles/logging.configWriter",
    "roles/logging.logWriter",
    "roles/logging.viewer",
    "roles/monitoring.editor",
    "roles/pubsub.admin",
    "roles/run.admin",
    "roles/serviceusage.serviceUsageAdmin",
    "roles/storage.admin",
  ]

  # The project's grants that a release may change.
  granted_roles = [
    "roles/cloudsql.client",
    "roles/cloudsql.instanceUser",
    "roles/logging.logWriter",
    google_project_iam_custom_role.model_caller.name,
    google_project_iam_custom_role.warehouse_jobs.name,
  ]
}

resource "google_service_account" "planner" {
  account_id   = "release-planner"
  display_name = "Tests, builds and plans a release"
  depends_on   = [google_project_service.this]
}

resource "google_service_account" "applier" {
  account_id   = "release-applier"
  display_name = "Applies a planned release"
  depends_on   = [google_project_service.this]
}

resource "google_project_iam_member" "planner" {
  for_each = toset(local.plan_roles)
  project  = var.project_id
  role     = each.value
  member   = google_service_account.planner.member
}

resource "google_project_iam_member" "applier" {
  #checkov:skip=CKV_GCP_49:it makes the functions' identities and the triggers; what it may grant is limited below
  for_each = toset(local.apply_roles)
  project  = var.project_id
  role     = each.value
  member   = google_service_account.applier.member
}

resource "google_project_iam_member" "applier_grants" {
  project = var.project_id
  role    = "roles/resourcemanager.projectIamAdmin"
  member  = google_service_account.applier.member

  condition {
    title      = "the functions' roles only"
    expression = "api.getAttribute('iam.googleapis.com/modifiedGrantsByRole', []).hasOnly([${join(", ", [for role in local.granted_roles : "'${role}'"])}])"
  }
}

# Makes secrets and says who reads them, without reading them itself.
resource "google_project_iam_custom_role" "secret_keeper" {
  role_id = "memberintelSecretKeeper"
  title   = "Keeps secrets it cannot read"
  permissions = [
    "secretmanager.secrets.create",
    "secretmanager.secrets.delete",
    "secretmanager.secrets.get",
    "secretmanager.secrets.getIamPolicy",
    "secretmanager.secrets.list",
    "secretmanager.secrets.setIamPolicy",
    "secretmanager.secrets.update",
  ]
}

resource "google_project_iam_member" "applier_secrets" {
  project = var.project_id
  role    = google_project_iam_custom_role.secret_keeper.name
  member  = google_service_account.applier.member
}

# A deployment runs as these.
resource "google_service_account_iam_member" "applier_acts_as" {
  for_each = merge(google_service_account.function, {
    migrator  = google_service_account.migrator
    operator  = google_service_account.operator
    pusher    = google_service_account.pusher
    scheduler = google_service_account.scheduler
    builder   = google_service_account.builder
  })
  service_account_id = each.value.name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.applier.member
}

# The smoke test signs in, and the evals ask the real model.
resource "google_secret_manager_secret_iam_member" "release" {
  for_each  = toset(["smoke_user", "anthropic_api_key"])
  secret_id = google_secret_manager_secret.this[each.key].secret_id
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.applier.member
}

resource "google_artifact_registry_repository_iam_member" "planner" {
  repository = google_artifact_registry_repository.images.repository_id
  location   = google_artifact_registry_repository.images.location
  role       = "roles/artifactregistry.writer"
  member     = google_service_account.planner.member
}

resource "google_storage_bucket_iam_member" "planner_archives" {
  bucket = google_storage_bucket.source.name
  role   = "roles/storage.objectViewer"
  member = google_service_account.planner.member
}

# It adds plans and cannot change one: what was approved is what is applied.
resource "google_storage_bucket_iam_member" "planner_plans" {
  for_each = toset(["roles/storage.objectCreator", "roles/storage.objectViewer"])
  bucket   = google_storage_bucket.plans.name
  role     = each.value
  member   = google_service_account.planner.member
}

resource "google_storage_bucket_iam_member" "state" {
  for_each = { planner = "roles/storage.objectViewer", applier = "roles/storage.objectUser" }
  bucket   = var.state_bucket
  role     = each.value
  member   = { planner = google_service_account.planner.member, applier = google_service_account.applier.member }[each.key]
}

# The planner hands a finished plan over by starting the other trigger; where an approval is asked for, it waits there. It may not act as
# the applier in a build of its own making.
resource "google_project_iam_custom_role" "build_starter" {
  role_id     = "memberintelBuildStarter"
  title       = "Starts builds"
  permissions = ["cloudbuild.builds.create", "cloudbuild.builds.get"]
}

resource "google_project_iam_member" "planner_starts" {
  project = var.project_id
  role    = google_project_iam_custom_role.build_starter.name
  member  = google_service_account.planner.member
}

resource "google_project_iam_member" "approver" {
  for_each = toset(var.owners.approvers)
  project  = var.project_id
  role     = "roles/cloudbuild.builds.approver"
  member   = each.value
}

# ------------------------------------------------------------------------------------------------------------------------- triggers

locals {
  substitutions = {
    _ENVIRONMENT = var.environment
    _REGION      = var.region
    _DOMAIN      = var.domain
    _PLANS       = google_storage_bucket.plans.name
  }
}

resource "google_cloudbuild_trigger" "plan" {
  name            = "plan"
  location        = var.region
  description     = "Lint, test, build and plan what was pushed; saves the plan"
  service_account = google_service_account.planner.id
  filename        = "cloudbuild.yaml"
  substitutions   = merge(local.substitutions, { _STAGE = "plan" })

  repository_event_config {
    repository = var.delivery.repository
    push {
      branch = var.delivery.branch
    }
  }
}

resource "google_cloudbuild_trigger" "apply" {
  name            = "apply"
  location        = var.region
  description     = "Apply the saved plan of a commit, then try it and shift the traffic"
  service_account = google_service_account.applier.id
  substitutions   = merge(local.substitutions, { _STAGE = "apply", _PLAN = "" })

  source_to_build {
    repository = var.delivery.repository
    ref        = "refs/heads/main"
    repo_type  = "UNKNOWN"
  }

  git_file_source {
    path       = "cloudbuild.yaml"
    repository = var.delivery.repository
    revision   = "refs/heads/main"
    repo_type  = "UNKNOWN"
  }

  approval_config {
    approval_required = var.delivery.approval
  }

  lifecycle {
    precondition {
      condition     = var.environment != "prod" || var.delivery.approval
      error_message = "A release to production waits for an approval."
    }
  }
}
