terraform {
  required_version = ">= 1.9"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 8.7"
    }
    google-beta = {
      source  = "hashicorp/google-beta"
      version = "~> 8.7"
    }
    time = {
      source  = "hashicorp/time"
      version = "~> 0.13"
    }
  }

  # The bucket is named by backends/<environment>.gcs.tfbackend: terraform init -backend-config=...
  backend "gcs" {}
}

provider "google" {
  project = var.project_id
  region  = var.region

  # The budget's API bills its quota to a project, which a person's own login does not name.
  user_project_override = true
  billing_project       = var.project_id

  default_labels = {
    app         = "memberintel"
    environment = var.environment
  }
}

provider "google-beta" {
  project = var.project_id
  region  = var.region
}

data "google_project" "this" {}
