environment = "staging"
project_id  = "memberintel-staging"
region      = "europe-west1"
domain      = "staging.advisor.example.com"
# Built by hand for the first deployment; each release gives its commit.
image_tag    = "first"
state_bucket = "memberintel-staging-state"

database = {
  tier                = "db-custom-2-7680"
  high_availability   = false
  max_connections     = 300
  deletion_protection = true
}

identity = {
  oidc_issuer            = "https://login.example.com/staging"
  oidc_audience          = "memberintel-staging"
  oidc_jwks_url          = "https://login.example.com/staging/keys"
  oidc_authorization_url = "https://login.example.com/staging/authorize"
  oidc_token_url         = "https://login.example.com/staging/token"
  access_issuer          = "https://example.cloudflareaccess.com"
  access_audience        = "memberintel-staging-admin"
  access_jwks_url        = "https://example.cloudflareaccess.com/cdn-cgi/access/certs"
  admin_emails           = ["operations@example.com"]
}

models = {
  embedding            = "gemini-embedding-001"
  daily_spend_stop_usd = 50
}

retention = {
  logs_days = 30
}

warehouse = {
  location = "EU"
}

owners = {
  on_call         = "on-call@example.com"
  knowledge_name  = "Name of the reviewer"
  knowledge_email = "knowledge@example.com"
  approvers       = ["group:release-approvers@example.com"]
  operators       = ["group:operators@example.com"]
}

budget = {
  billing_account = "000000-000000-000000"
  amount          = 800
}

delivery = {
  repository = "projects/memberintel-staging/locations/europe-west1/connections/github/repositories/memberintel"
  approval   = false
}
