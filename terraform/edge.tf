# One origin: an HTTPS load balancer behind Cloudflare that sends each path to its service.

locals {
  hosts = { live = var.domain, candidate = "candidate.${var.domain}" }

  # Addresses of Cloudflare's edge, from its published list. Cloudflare Access is the admins' gate, and no gate if there is a way around it.
  cloudflare = [
    "103.21.244.0/22", "103.22.200.0/22", "103.31.4.0/22", "104.16.0.0/13", "104.24.0.0/14",
    "108.162.192.0/18", "131.0.72.0/22", "141.101.64.0/18", "162.158.0.0/15", "172.64.0.0/13",
    "173.245.48.0/20", "188.114.96.0/20", "190.93.240.0/20", "197.234.240.0/22", "198.41.128.0/17",
  ]

  # A rule takes ten ranges.
  cloudflare_rules = chunklist(local.cloudflare, 10)

  endpoints = { for pair in setproduct(keys(local.services), keys(local.hosts)) : "${pair[0]}-${pair[1]}" => { service = pair[0], host = pair[1] } }
}

resource "google_compute_global_address" "edge" {
  name       = "memberintel"
  depends_on = [google_project_service.this]
}

# The candidate's endpoints reach the newest revision, whatever traffic it has: the smoke test goes the customers' way.
resource "google_compute_region_network_endpoint_group" "this" {
  for_each              = local.endpoints
  name                  = each.key
  region                = var.region
  network_endpoint_type = "SERVERLESS"

  cloud_run {
    service = google_cloud_run_v2_service.this[each.value.service].name
    tag     = each.value.host == "candidate" ? "candidate" : null
  }
}

resource "google_compute_backend_service" "this" {
  for_each              = local.endpoints
  name                  = each.key
  load_balancing_scheme = "EXTERNAL_MANAGED"
  protocol              = "HTTPS"
  security_policy       = google_compute_security_policy.edge.id

  backend {
    group = google_compute_region_network_endpoint_group.this[each.key].id
  }

  log_config {
    enable      = true
    sample_rate = 0.1
  }
}

resource "google_compute_url_map" "edge" {
  name            = "memberintel"
  default_service = google_compute_backend_service.this["brain-live"].id

  dynamic "host_rule" {
    for_each = local.hosts
    content {
      hosts        = [host_rule.value]
      path_matcher = host_rule.key
    }
  }

  # brain answers /, /v1, /openapi.json and the console's files.
  dynamic "path_matcher" {
    for_each = local.hosts
    content {
      name            = path_matcher.key
      default_service = google_compute_backend_service.this["brain-${path_matcher.key}"].id

      path_rule {
        paths   = ["/", "/v1", "/v1/*", "/openapi.json"]
        service = google_compute_backend_service.this["brain-${path_matcher.key}"].id
      }

      path_rule {
        paths   = ["/chat", "/chat/*"]
        service = google_compute_backend_service.this["chat-${path_matcher.key}"].id
      }

      path_rule {
        paths   = ["/admin", "/admin/*"]
        service = google_compute_backend_service.this["admin-${path_matcher.key}"].id
      }
    }
  }
}

resource "google_compute_managed_ssl_certificate" "edge" {
  count = var.edge.certificate_map == null ? 1 : 0
  name  = "memberintel"

  managed {
    domains = values(local.hosts)
  }

  depends_on = [google_project_service.this]
}


resource "google_compute_target_https_proxy" "edge" {
  name             = "memberintel"
  url_map          = google_compute_url_map.edge.id
  ssl_policy       = var.edge.ssl_policy
  certificate_map  = var.edge.certificate_map
  ssl_certificates = var.edge.certificate_map == null ? [google_compute_managed_ssl_certificate.edge[0].id] : null
}

resource "google_compute_global_forwarding_rule" "edge" {
  name                  = "memberintel"
  load_balancing_scheme = "EXTERNAL_MANAGED"
  ip_address            = google_compute_global_address.edge.id
  port_range            = "443"
  target                = google_compute_target_https_proxy.edge.id
}

resource "google_compute_security_policy" "edge" {
  #checkov:skip=CKV_GCP_73:the rule is for log4j, which nothing here has; it would refuse customers who write about it
  name       = "memberintel"
  type       = "CLOUD_ARMOR"
  depends_on = [google_project_service.this]

  dynamic "rule" {
    for_each = local.cloudflare_rules
    content {
      description = "Cloudflare, at a human pace for each address behind it"
      action      = "throttle"
      priority    = 1000 + rule.key

      match {
        versioned_expr = "SRC_IPS_V1"
        config {
          src_ip_ranges = rule.value
        }
      }

      rate_limit_options {
        conform_action      = "allow"
        exceed_action       = "deny(429)"
        enforce_on_key      = "HTTP_HEADER"
        enforce_on_key_name = "CF-Connecting-IP"
        rate_limit_threshold {
          count        = 600
          interval_sec = 60
        }
      }
    }
  }

  rule {
    description = "Nobody else"
    action      = "deny(403)"
    priority    = 2147483647

    match {
      versioned_expr = "SRC_IPS_V1"
      config {
        src_ip_ranges = ["*"]
      }
    }
  }
}
