# The functions of the system: one entry each, from which its identity, its deployment, its wiring and its database connections follow.

locals {
  functions = {
    # A stream holds a thread and no connection; eighty on an instance is what benchmarks/ holds it to.
    chat = {
      kind        = "service"
      concurrency = 80
      cpu         = "2"
      memory      = "1Gi"
      timeout     = 300
      instances   = { min = 1, max = 10 }
      pool_size   = 8
      role        = "memberintel_app"
      secrets     = ["anthropic_api_key"]
      publishes   = ["tool-results", "session-ended", "retrieval-events"]
      uses        = ["models", "ledger"]
    }
    brain = {
      kind        = "service"
      concurrency = 16
      cpu         = "1"
      memory      = "512Mi"
      timeout     = 120
      instances   = { min = 0, max = 5 }
      pool_size   = 8
      role        = "memberintel_app"
      secrets     = []
      publishes   = ["session-ended"]
      uses        = ["models", "ledger", "erasure"]
    }
    admin = {
      kind        = "service"
      concurrency = 8
      cpu         = "1"
      memory      = "512Mi"
      timeout     = 120
      instances   = { min = 0, max = 2 }
      pool_size   = 4
      role        = "memberintel_admin_read"
      secrets     = []
      publishes   = []
      uses        = ["models"]
    }
    persist_tool_results = {
      kind        = "event"
      concurrency = 4
      cpu         = "1"
      memory      = "512Mi"
      timeout     = 120
      instances   = { min = 0, max = 5 }
      pool_size   = 4
      role        = "memberintel_jobs"
      secrets     = []
      publishes   = []
      uses        = []
      topic       = "tool-results"
    }
    generate_wrap_up = {
      kind        = "event"
      concurrency = 4
      cpu         = "1"
      memory      = "512Mi"
      timeout     = 540
      instances   = { min = 0, max = 5 }
      pool_size   = 2
      role        = "memberintel_jobs"
      secrets     = ["anthropic_api_key"]
      publishes   = []
      uses        = ["models"]
      topic       = "session-ended"
    }
    relay_events = {
      kind        = "job"
      concurrency = 2
      cpu         = "1"
      memory      = "512Mi"
      timeout     = 50
      instances   = { min = 0, max = 2 }
      pool_size   = 2
      role        = "memberintel_jobs"
      secrets     = []
      publishes   = ["tool-results", "session-ended"]
      uses        = []
      schedule    = "* * * * *"
      retries     = 1
    }
    backfill_wrap_ups = {
      kind        = "job"
      concurrency = 2
      cpu         = "1"
      memory      = "512Mi"
      timeout     = 300
      instances   = { min = 0, max = 1 }
      pool_size   = 2
      role        = "memberintel_sweep"
      secrets     = []
      publishes   = ["session-ended"]
      uses        = []
      schedule    = "0 2 * * *"
      retries     = 3
    }
    nightly_refresh = {
      kind        = "job"
      concurrency = 2
      cpu         = "1"
      memory      = "1Gi"
      timeout     = 1500
      instances   = { min = 0, max = 1 }
      pool_size   = 2
      role        = "memberintel_sweep"
      secrets     = []
      publishes   = []
      uses        = []
      schedule    = "0 3 * * *"
      retries     = 3
    }
    export_bigquery = {
      kind        = "job"
      concurrency = 2
      cpu         = "1"
      memory      = "1Gi"
      timeout     = 1500
      instances   = { min = 0, max = 1 }
      pool_size   = 2
      role        = "memberintel_sweep"
      secrets     = []
      publishes   = []
      uses        = ["export"]
      schedule    = "0 4 * * *"
      retries     = 3
    }
  }

  services = { for key, f in local.functions : key => f if f.kind == "service" }
  internal = { for key, f in local.functions : key => f if f.kind != "service" }
  events   = { for key, f in local.functions : key => f if f.kind == "event" }
  jobs     = { for key, f in local.functions : key => f if f.kind == "job" && (key != "export_bigquery" || var.warehouse.export) }
  uses     = { for use in ["models", "ledger", "erasure", "export"] : use => toset([for key, f in local.functions : key if contains(f.uses, use)]) }

  # Names in the cloud allow no underscore.
  names     = { for key in keys(local.functions) : key => replace(key, "_", "-") }
  instances = { for key, f in local.functions : key => try(var.instances[key], f.instances) }

  # What each instance may hold, times how many there may be; the migration and an operator's command come on top.
  connections = sum([for key, f in local.functions : local.instances[key].max * f.pool_size]) + local.migrator_connections + local.operator_connections

  migrator_connections = 2
  operator_connections = 2

  image = "${local.registry}/memberintel:${var.image_tag}"
}

# The database refuses whom it has no connection for, and that is the customer in the busiest minute.
check "pool_arithmetic" {
  assert {
    condition     = local.connections <= 0.8 * var.database.max_connections
    error_message = "Instances times pool size is ${local.connections}, more than 80 % of max_connections (${var.database.max_connections})."
  }
}
