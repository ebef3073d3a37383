# The secrets are made here and filled by people: no value is ever in the state. `smoke_user` is how the release signs in as a customer
# (docs/operations.md, "The smoke user"); no function reads it.

resource "google_secret_manager_secret" "this" {
  for_each            = toset(concat(["smoke_user"], flatten([for f in local.functions : f.secrets])))
  secret_id           = replace(each.key, "_", "-")
  deletion_protection = var.environment == "prod"
  version_destroy_ttl = "604800s"

  replication {
    user_managed {
      replicas {
        location = var.region
      }
    }
  }

  depends_on = [google_project_service.this]
}
