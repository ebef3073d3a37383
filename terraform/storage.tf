# Buckets: the functions' archives, saved plans, and the ledger of erasures, which must outlive a restore of the database.

resource "google_storage_bucket" "source" {
  #checkov:skip=CKV_GCP_62:logging.tf logs reads and writes of every bucket as audit entries
  name                        = "${var.project_id}-functions"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  versioning {
    enabled = true
  }

  lifecycle_rule {
    condition {
      days_since_noncurrent_time = 30
    }
    action {
      type = "Delete"
    }
  }
}

resource "google_storage_bucket" "plans" {
  #checkov:skip=CKV_GCP_62:logging.tf logs reads and writes of every bucket as audit entries
  name                        = "${var.project_id}-plans"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  versioning {
    enabled = true
  }

  lifecycle_rule {
    condition {
      age = 30
    }
    action {
      type = "Delete"
    }
  }
}

resource "google_storage_bucket" "ledger" {
  #checkov:skip=CKV_GCP_62:logging.tf logs reads and writes of every bucket as audit entries
  name                        = "${var.project_id}-erasures"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  versioning {
    enabled = true
  }

  lifecycle {
    prevent_destroy = true
  }
}
