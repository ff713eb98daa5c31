# A service account of an organization, and its keys, by Terraform alone: no provider has to be downloaded.
#
# The keys were made offline (`keygate key generate --tag TAG`). Terraform has their ids and digests; the secrets are
# where the services read them, and in no plan, no state file and no log.

terraform {
  required_version = ">= 1.4"
}

variable "org" {
  description = "Organization, by its id or name."
  type        = string
}

variable "concurrent" {
  description = "Requests of the organization in flight at most; null for the configured limit."
  type        = number
  default     = null
}

variable "service" {
  description = "Name of the service account."
  type        = string
}

variable "responsible" {
  description = "Person who is responsible for it, by email address."
  type        = string
}

variable "permissions" {
  description = "Permissions of the service account."
  type        = list(string)
  default     = []
}

variable "keys" {
  description = "Its keys by name: id and SHA-256, as `keygate key generate` printed them, and the policy."
  type = map(object({
    id     = string
    sha256 = string
    policy = optional(object({
      permissions = optional(list(string))
      networks    = optional(list(string))
      concurrent  = optional(number)
      expires     = optional(string)
    }), {})
  }))
  default = {}

  validation {
    condition     = alltrue([for key in values(var.keys) : can(regex("^[0-9a-f]{64}$", key.sha256))])
    error_message = "sha256 must be 64 hexadecimal digits, as `keygate key generate` prints them."
  }
}

locals {
  call = "sh ${path.module}/keygate.sh"
}

# A budget: changed in place, and back to the configured one at the end.
resource "terraform_data" "budget" {
  input            = var.org
  triggers_replace = [var.org, var.concurrent]

  provisioner "local-exec" {
    command     = "${local.call} PATCH /orgs/${var.org} \"$BODY\""
    environment = { BODY = jsonencode({ concurrent = var.concurrent }) }
  }

  provisioner "local-exec" {
    when        = destroy
    command     = "sh ${path.module}/keygate.sh PATCH /orgs/${self.input} \"$BODY\""
    environment = { BODY = jsonencode({ concurrent = null }) }
  }
}

resource "terraform_data" "service" {
  input            = "/orgs/${var.org}/users/${var.service}"
  triggers_replace = [var.org, var.service]

  # 409: it is there already. Its settings follow.
  provisioner "local-exec" {
    command = "${local.call} POST /orgs/${var.org}/users \"$BODY\""
    environment = {
      ACCEPT = "409"
      CALL   = self.id
      BODY   = jsonencode({ email = var.service, kind = "service", responsible = var.responsible })
    }
  }

  provisioner "local-exec" {
    when        = destroy
    command     = "sh ${path.module}/keygate.sh DELETE ${self.input}"
    environment = { ACCEPT = "404" }
  }
}

# Settings are resources of their own, so that a change of them replaces neither the account nor a key.
resource "terraform_data" "service_settings" {
  triggers_replace = [terraform_data.service.id, var.responsible, sort(var.permissions)]

  provisioner "local-exec" {
    command     = "${local.call} PATCH ${terraform_data.service.output} \"$BODY\""
    environment = { BODY = jsonencode({ responsible = var.responsible, permissions = var.permissions }) }
  }
}

# A new key takes the place of one with another id; the old one is revoked first.
resource "terraform_data" "key" {
  for_each = var.keys

  input            = "/keys/${each.value.id}"
  triggers_replace = [terraform_data.service.id, each.key, each.value.id]
  depends_on       = [terraform_data.service_settings]

  provisioner "local-exec" {
    command     = "${local.call} PUT /orgs/${var.org}/keys/by-digest/${each.value.sha256} \"$BODY\""
    environment = { BODY = jsonencode({ name = each.key, user = var.service, id = each.value.id }) }
  }

  provisioner "local-exec" {
    when        = destroy
    command     = "sh ${path.module}/keygate.sh POST ${self.input}/revoke"
    environment = { ACCEPT = "404" }
  }
}

# Another digest under the same id rotates the key: the first call is accepted while the key has the secret already.
resource "terraform_data" "key_secret" {
  for_each = var.keys

  triggers_replace = [terraform_data.key[each.key].id, each.value.sha256]

  provisioner "local-exec" {
    command = <<-EOT
      ${local.call} PUT /orgs/${var.org}/keys/by-digest/${each.value.sha256} "$BODY" ||
        ${local.call} POST ${terraform_data.key[each.key].output}/rotate "$ROTATION"
    EOT
    environment = {
      BODY     = jsonencode({ name = each.key, user = var.service, id = each.value.id })
      CALL     = self.id
      ROTATION = jsonencode({ sha256 = each.value.sha256 })
    }
  }
}

resource "terraform_data" "key_policy" {
  for_each = var.keys

  triggers_replace = [terraform_data.key[each.key].id, jsonencode(each.value.policy)]

  provisioner "local-exec" {
    command     = "${local.call} PATCH ${terraform_data.key[each.key].output} \"$BODY\""
    environment = { BODY = jsonencode({ policy = each.value.policy }) }
  }
}
