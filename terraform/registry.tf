resource "google_artifact_registry_repository" "images" {
  #checkov:skip=CKV_GCP_84:images hold code and no data
  repository_id = "memberintel"
  location      = var.region
  format        = "DOCKER"
  description   = "The services' image and what Cloud Functions builds"

  cleanup_policies {
    id     = "keep-recent"
    action = "KEEP"
    most_recent_versions {
      keep_count = 20
    }
  }

  cleanup_policies {
    id     = "drop-old"
    action = "DELETE"
    condition {
      older_than = "7776000s"
    }
  }

  depends_on = [google_project_service.this]
}

locals {
  registry = "${google_artifact_registry_repository.images.location}-docker.pkg.dev/${var.project_id}/${google_artifact_registry_repository.images.repository_id}"
}
