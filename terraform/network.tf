# One network. Serverless code reaches the database through it, and everything else over Google's edge.

resource "google_compute_network" "main" {
  name                    = "memberintel"
  auto_create_subnetworks = false
  depends_on              = [google_project_service.this]
}

resource "google_compute_subnetwork" "serverless" {
  name                     = "serverless"
  network                  = google_compute_network.main.id
  region                   = var.region
  ip_cidr_range            = "10.20.0.0/22"
  private_ip_google_access = true

  log_config {
    aggregation_interval = "INTERVAL_10_MIN"
    flow_sampling        = 0.1
    metadata             = "INCLUDE_ALL_METADATA"
  }
}

resource "google_compute_global_address" "services" {
  name          = "private-services"
  purpose       = "VPC_PEERING"
  address_type  = "INTERNAL"
  address       = "10.30.0.0"
  prefix_length = 20
  network       = google_compute_network.main.id
}

resource "google_service_networking_connection" "services" {
  network                 = google_compute_network.main.id
  service                 = "servicenetworking.googleapis.com"
  reserved_peering_ranges = [google_compute_global_address.services.name]
}

# 3307 is the port of the Cloud SQL connector's TLS.
resource "google_compute_firewall" "database" {
  name               = "to-the-database"
  network            = google_compute_network.main.id
  direction          = "EGRESS"
  priority           = 1000
  destination_ranges = ["${google_compute_global_address.services.address}/${google_compute_global_address.services.prefix_length}"]

  allow {
    protocol = "tcp"
    ports    = ["3307"]
  }
}

resource "google_compute_firewall" "nowhere_else" {
  name               = "nowhere-else-inside"
  network            = google_compute_network.main.id
  direction          = "EGRESS"
  priority           = 2000
  destination_ranges = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]

  deny {
    protocol = "all"
  }
}
