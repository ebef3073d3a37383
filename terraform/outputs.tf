output "address" {
  description = "Address for the DNS records of the domain and of candidate.<domain>."
  value       = google_compute_global_address.edge.address
}

output "registry" {
  description = "Where the services' image is pushed."
  value       = local.registry
}

output "secrets" {
  description = "Secrets that need a version before the services start."
  value       = [for s in google_secret_manager_secret.this : s.secret_id]
}

output "connections" {
  description = "Database connections that all instances together may hold."
  value       = local.connections
}
