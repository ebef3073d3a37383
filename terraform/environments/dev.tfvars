environment = "dev"
project_id  = "memberintel-dev"
region      = "europe-west1"
domain      = "dev.advisor.example.com"
# Built by hand for the first deployment; each release gives its commit.
image_tag    = "first"
state_bucket = "memberintel-dev-state"

database = {
  tier                = "db-custom-1-3840"
  high_availability   = false
  max_connections     = 150
  deletion_protection = false
}

instances = {
  chat                 = { min = 0, max = 3 }
  brain                = { min = 0, max = 2 }
  admin                = { min = 0, max = 1 }
  persist_tool_results = { max = 2 }
  generate_wrap_up     = { max = 2 }
}

identity = {
  oidc_issuer            = "https://login.example.com/dev"
  oidc_audience          = "memberintel-dev"
  oidc_jwks_url          = "https://login.example.com/dev/keys"
  oidc_authorization_url = "https://login.example.com/dev/authorize"
  oidc_token_url         = "https://login.example.com/dev/token"
  access_issuer          = "https://example.cloudflareaccess.com"
  access_audience        = "memberintel-dev-admin"
  access_jwks_url        = "https://example.cloudflareaccess.com/cdn-cgi/access/certs"
  admin_emails           = ["operations@example.com"]
}

models = {
  embedding            = "gemini-embedding-001"
  daily_spend_stop_usd = 20
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
  amount          = 300
}

delivery = {
  repository = "projects/memberintel-dev/locations/europe-west1/connections/github/repositories/memberintel"
  approval   = false
}
