environment = "prod"
project_id  = "memberintel-prod"
region      = "europe-west1"
domain      = "advisor.example.com"
# Built by hand for the first deployment; each release gives its commit.
image_tag    = "first"
state_bucket = "memberintel-prod-state"

database = {
  tier                = "db-custom-4-15360"
  high_availability   = true
  max_connections     = 400
  deletion_protection = true
  backups             = 30
}

identity = {
  oidc_issuer            = "https://login.example.com/prod"
  oidc_audience          = "memberintel-prod"
  oidc_jwks_url          = "https://login.example.com/prod/keys"
  oidc_authorization_url = "https://login.example.com/prod/authorize"
  oidc_token_url         = "https://login.example.com/prod/token"
  access_issuer          = "https://example.cloudflareaccess.com"
  access_audience        = "memberintel-prod-admin"
  access_jwks_url        = "https://example.cloudflareaccess.com/cdn-cgi/access/certs"
  admin_emails           = ["operations@example.com"]
}

models = {
  embedding            = "gemini-embedding-001"
  daily_spend_stop_usd = 200
}

retention = {
  logs_days = 90
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
  amount          = 5000
}

delivery = {
  repository = "projects/memberintel-prod/locations/europe-west1/connections/github/repositories/memberintel"
  approval   = true
}
