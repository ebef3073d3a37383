variable "environment" {
  type        = string
  description = "Which environment this is; one project, one state and one tfvars file each."
  validation {
    condition     = contains(["dev", "staging", "prod"], var.environment)
    error_message = "environment is dev, staging or prod."
  }
}

variable "project_id" {
  type        = string
  description = "Project that holds the environment, and nothing else."
}

variable "region" {
  type        = string
  description = "Region of everything that has one."
}

variable "domain" {
  type        = string
  description = "Host name of the one origin that /chat, /v1 and /admin share; `candidate.<domain>` reaches the revision under test."
  validation {
    condition     = can(regex("^[a-z0-9-]+(\\.[a-z0-9-]+)+$", var.domain))
    error_message = "domain is a bare host name such as advisor.example.com."
  }
}

variable "edge" {
  type = object({
    certificate_map = optional(string)
    ssl_policy      = optional(string)
  })
  description = "Made by hand, once: a Certificate Manager map with DNS authorisation (`//certificatemanager.googleapis.com/…`; without it the load balancer gets a certificate of its own, which only renews while the domain resolves to it directly) and an SSL policy that refuses old TLS (its id)."
  default     = {}
}

variable "image_tag" {
  type        = string
  description = "Tag of the services' image in this environment's registry: the commit that it was built from."
  validation {
    condition     = can(regex("^[A-Za-z0-9_.-]{1,50}$", var.image_tag)) && var.image_tag != "latest"
    error_message = "image_tag names one build; latest names none."
  }
}

variable "zips" {
  type        = string
  description = "Folder of the functions' archives, made by `python -m local.package`."
  default     = "../build/functions"
}

variable "serving" {
  type        = map(string)
  description = "Revision of each service that keeps the traffic while the new one is tried; what is not named goes to the newest."
  default     = {}
  validation {
    condition     = alltrue([for name in keys(var.serving) : contains(["chat", "brain", "admin"], name)])
    error_message = "serving names chat, brain and admin only."
  }
}

variable "database" {
  type = object({
    tier                = string
    high_availability   = bool
    max_connections     = number
    deletion_protection = bool
    backups             = optional(number, 14)
    log_days            = optional(number, 7)
    disk_limit_gb       = optional(number, 200)
  })
  description = "Size and safety of the Cloud SQL instance."
  validation {
    condition     = var.database.log_days >= 1 && var.database.log_days <= 7
    error_message = "Point-in-time recovery keeps 1 to 7 days of logs."
  }
}

variable "instances" {
  type        = map(object({ min = optional(number, 0), max = number }))
  description = "Instances of a function, where they differ from locals.tf."
  default     = {}
}

variable "identity" {
  type = object({
    oidc_issuer            = string
    oidc_audience          = string
    oidc_jwks_url          = string
    oidc_authorization_url = string
    oidc_token_url         = string
    first_login            = optional(string, "refuse")
    access_issuer          = string
    access_audience        = string
    access_jwks_url        = string
    admin_emails           = list(string)
  })
  description = "Who vouches for customers (OIDC; the audience is the client id with which the console signs in) and for admins (Cloudflare Access)."
  validation {
    condition = alltrue([for u in [
      var.identity.oidc_issuer, var.identity.oidc_jwks_url, var.identity.oidc_authorization_url, var.identity.oidc_token_url,
      var.identity.access_issuer, var.identity.access_jwks_url,
    ] : startswith(u, "https://")])
    error_message = "Issuers, their sign-in and their key addresses are https."
  }
  validation {
    condition     = length(var.identity.admin_emails) > 0
    error_message = "Somebody must be able to read the usage report."
  }
}

variable "models" {
  type = object({
    vertex_location      = optional(string, "global")
    embedding            = string
    chat_pro             = optional(string, "")
    chat_free            = optional(string, "")
    skill                = optional(string, "")
    wrap_up              = optional(string, "")
    chat_fallback        = optional(string, "")
    skill_fallback       = optional(string, "")
    wrap_up_fallback     = optional(string, "")
    daily_spend_stop_usd = number
  })
  description = "`provider:model` of each task (empty: the code's choice), the embedding model, and the daily spend at which calls stop."
}

variable "retention" {
  type = object({
    wrap_ups_days  = optional(number, 365)
    logs_days      = number
    warehouse_days = optional(number, 730)
  })
  description = "How long wrap-ups, logs, and what PostgreSQL keeps for good are kept in BigQuery."
}

variable "warehouse" {
  type = object({
    location = string
    export   = optional(bool, true)
    sink     = optional(string, "postgres")
    readers  = optional(list(string), [])
  })
  description = "BigQuery: where, whether the nightly export runs, the sink of retrieval events, and who may query (IAM members)."
  validation {
    condition     = contains(["postgres", "both"], var.warehouse.sink)
    error_message = "sink is postgres or both."
  }
}

variable "owners" {
  type = object({
    on_call           = string
    knowledge_name    = string
    knowledge_email   = string
    approvers         = list(string)
    operators         = list(string)
    old_data_hours    = optional(number, 48)
    rows_a_day_notice = optional(number, 40000)
  })
  description = "Who is woken (on_call), who reviews the knowledge base each week and answers for the move to BigQuery (named), who may approve a release and who may run operators' commands (IAM members)."
  validation {
    condition     = alltrue([for m in [var.owners.on_call, var.owners.knowledge_email] : can(regex("^[^@ ]+@[^@ ]+$", m))])
    error_message = "on_call and knowledge_email are e-mail addresses."
  }
  validation {
    condition     = length(trimspace(var.owners.knowledge_name)) > 0
    error_message = "The notice of the cutover goes to a person with a name."
  }
}

variable "budget" {
  type = object({
    billing_account = string
    amount          = number
    currency        = optional(string, "USD")
  })
  description = "Monthly budget of the project; it warns at 50, 80 and 100 % and when 120 % is forecast."
}

variable "delivery" {
  type = object({
    repository = string
    branch     = optional(string, "^main$")
    approval   = bool
  })
  description = "Cloud Build: the connected repository, the branch whose pushes are planned, and whether an apply waits for an approval."
}

variable "state_bucket" {
  type        = string
  description = "Bucket of this environment's state: made by hand before the first apply, named in the backend file too."
}
