//! A call of a program, authenticated: performs the operation of its endpoint.

use std::time::Duration;

use bytes::Bytes;
use http::header::{IF_NONE_MATCH, LOCATION};
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use super::error::ApiError;
use super::input;
use super::reading;
use super::response;
use super::routes::Endpoint;
use crate::json_input;
use crate::management::{
    Actor, ApiKey, Key, KeyImport, Management, ManagementError, NewKey, NewKeyRequest, Org, Program, Replay, Rotation,
    SecretSource, User, UserKind,
};
use crate::request::ControlRequest;
use domain::key::KeyId;
use domain::page::PageQuery;
use state::IdempotencyRecord;

/// An authenticated call.
pub(super) struct Call<'a> {
    management: &'a Management,
    request: &'a ControlRequest,
    /// The program, as the actor of operations.
    actor: Actor,
}

impl<'a> Call<'a> {
    pub(super) fn new(management: &'a Management, request: &'a ControlRequest, program: Program) -> Self {
        Self { management, request, actor: Actor::Program(Box::new(program)) }
    }

    /// Performs the operation. `values` are the segments of the path at the places of the route's braces.
    pub(super) async fn perform(&self, endpoint: Endpoint, values: &[&str]) -> Result<Response<Bytes>, ApiError> {
        let Self { management, actor, .. } = self;
        let now = self.request.now;
        let value = |index: usize| input::reference(values.get(index).copied().unwrap_or_default());
        let body = match endpoint {
            Endpoint::Document | Endpoint::ExportState => unreachable!("the API has answered these"),
            Endpoint::ListOrgs => json!(management.list_orgs(actor, &self.page()?, now).await?),
            Endpoint::CreateOrg => return self.create_org().await,
            Endpoint::ShowOrg => return Ok(of_org(&management.show_org(actor, &value(0)?, now).await?)),
            Endpoint::PatchOrg => {
                let update = json_input::body(self.request)?;
                return Ok(of_org(&management.update_org(actor, &value(0)?, update, now).await?));
            }
            Endpoint::ListUsers => json!(management.list_users(actor, &value(0)?, &self.page()?, now).await?),
            Endpoint::CreateUser => return self.create_user(&value(0)?).await,
            Endpoint::ShowUser => {
                return Ok(of_user(&management.show_user(actor, &value(0)?, &value(1)?, now).await?));
            }
            Endpoint::PatchUser => {
                let update = json_input::body(self.request)?;
                return Ok(of_user(&management.update_user(actor, &value(0)?, &value(1)?, update, now).await?));
            }
            Endpoint::RemoveUser => {
                return Ok(of_user(&management.remove_user(actor, &value(0)?, &value(1)?, now).await?));
            }
            Endpoint::ListKeys => {
                let query = input::key_query(self.request)?;
                json!(management.list_keys(actor, &value(0)?, &query, &self.page()?, now).await?)
            }
            Endpoint::CreateKey => return self.create_key(&value(0)?).await,
            Endpoint::ImportKey => return self.import_key(&value(0)?).await,
            Endpoint::PutKey => return self.put_key(&value(0)?, &value(1)?).await,
            Endpoint::ShowKey
            | Endpoint::PatchKey
            | Endpoint::RotateKey
            | Endpoint::RevokeKey
            | Endpoint::DisableKey
            | Endpoint::EnableKey
            | Endpoint::Explain => return self.perform_on_key(endpoint, &value(0)?).await,
            Endpoint::ListFoundKeys
            | Endpoint::ShowActivity
            | Endpoint::ListUses
            | Endpoint::ShowUsage
            | Endpoint::ListRecords => self.read(endpoint, values).await?,
            Endpoint::ListRules | Endpoint::CreateRule | Endpoint::ShowRule | Endpoint::RemoveRule => {
                return self.perform_on_rules(endpoint, &value(0)?, values).await;
            }
            Endpoint::ListTokens => {
                json!(management.list_tokens(actor, self.request.parameter("org"), &self.page()?, now).await?)
            }
            Endpoint::CreateToken => return self.create_token().await,
            Endpoint::RevokeToken => {
                let token = input::token(values.first().copied().unwrap_or_default())?;
                let with_descendants = json_input::boolean(self.request, "with_descendants")?.unwrap_or(false);
                json!(management.revoke_token(actor, token, with_descendants, now).await?)
            }
        };
        Ok(response::json(StatusCode::OK, &body))
    }

    /// Performs an operation on one key.
    async fn perform_on_key(&self, endpoint: Endpoint, key: &str) -> Result<Response<Bytes>, ApiError> {
        let Self { management, actor, request } = self;
        let key = input::key(key)?;
        let now = request.now;
        let shown = match endpoint {
            Endpoint::ShowKey => management.show_key(actor, key, now).await?,
            Endpoint::PatchKey => management.update_key(actor, key, json_input::body(request)?, now).await?,
            Endpoint::RotateKey => return self.rotate_key(key).await,
            Endpoint::RevokeKey => management.revoke_key(actor, key, now).await?,
            Endpoint::DisableKey => {
                let input::DisableKeyBody { leaked } = json_input::optional_body(request)?;
                management.disable_key(actor, key, leaked, now).await?
            }
            Endpoint::EnableKey => management.enable_key(actor, key, now).await?,
            Endpoint::Explain => {
                return Ok(response::json(StatusCode::OK, &management.explain_key(actor, key, now).await?));
            }
            _ => unreachable!("the caller performs what is not on one key"),
        };
        Ok(of_key(&shown))
    }

    /// Performs an operation on the federation rules of an organization.
    async fn perform_on_rules(
        &self,
        endpoint: Endpoint,
        org: &str,
        values: &[&str],
    ) -> Result<Response<Bytes>, ApiError> {
        let Self { management, actor, request } = self;
        let now = request.now;
        let name = || input::reference(values.get(1).copied().unwrap_or_default());
        let body = match endpoint {
            Endpoint::ListRules => json!(management.list_federation_rules(actor, org, &self.page()?, now).await?),
            Endpoint::CreateRule => {
                let rule = json_input::body(request)?;
                let rule = management.create_federation_rule(actor, org, rule, now).await?;
                let location = format!("/v1/orgs/{}/federation-rules/{}", rule.org, rule.name);
                return Ok(created(location, response::json(StatusCode::OK, &rule)));
            }
            Endpoint::ShowRule => json!(management.show_federation_rule(actor, org, &name()?, now).await?),
            Endpoint::RemoveRule => json!(management.remove_federation_rule(actor, org, &name()?, now).await?),
            _ => unreachable!("the caller performs what is not on rules"),
        };
        Ok(response::json(StatusCode::OK, &body))
    }

    /// Performs an operation that looks keys up by their digests, or reads the audit.
    async fn read(&self, endpoint: Endpoint, values: &[&str]) -> Result<Value, ApiError> {
        let Self { management, actor, request } = self;
        let now = request.now;
        let segment = values.first().copied().unwrap_or_default();
        Ok(match endpoint {
            Endpoint::ListFoundKeys => {
                let digests = input::digests(request)?;
                json!({ "found": management.find_keys_by_digest(actor, &digests, now).await? })
            }
            Endpoint::ShowActivity => {
                let keys = input::key_list(request)?;
                json!(management.key_activity(actor, &input::reference(segment)?, keys, now).await?)
            }
            Endpoint::ListUses => {
                let filter = json_input::use_filter(request)?;
                json!(management.list_uses(actor, input::key(segment)?, filter, &self.page()?, now).await?)
            }
            Endpoint::ShowUsage => {
                let usage = reading::usage(request, management.has_fleet())?;
                json!(management.show_usage(actor, usage, now).await?)
            }
            Endpoint::ListRecords => {
                let filter = reading::records(request)?;
                let org = request.parameter("org");
                json!(management.list_records(actor, org, filter, &self.page()?, now).await?)
            }
            _ => unreachable!("the caller has matched these endpoints"),
        })
    }

    /// The result of a call that was made before.
    pub(super) async fn replay(&self, record: &IdempotencyRecord) -> Result<Replay, ApiError> {
        Ok(self.management.replay(&self.actor, record, self.request.now).await?)
    }

    /// The page of a list that the call asks for.
    fn page(&self) -> Result<PageQuery, ApiError> {
        json_input::page_query(self.request).map_err(|error| ManagementError::from(error).into())
    }

    async fn create_org(&self) -> Result<Response<Bytes>, ApiError> {
        let input::CreateOrgBody { name } = json_input::body(self.request)?;
        let org = self.management.create_org(&self.actor, &name, self.request.now).await?;
        Ok(created(format!("/v1/orgs/{}", org.id), of_org(&org)))
    }

    async fn create_user(&self, org: &str) -> Result<Response<Bytes>, ApiError> {
        let input::CreateUserBody { email, kind, permissions, responsible } = json_input::body(self.request)?;
        let Self { management, actor, request } = self;
        let user = match (kind, responsible) {
            (UserKind::Person, None) => management.create_user(actor, org, &email, permissions, request.now).await?,
            (UserKind::Service, Some(person)) => {
                management.create_service(actor, org, &email, &person, permissions, request.now).await?
            }
            (UserKind::Person, Some(_)) => return Err(invalid_body("only a service has a responsible person")),
            (UserKind::Service, None) => return Err(invalid_body("a service needs a responsible person")),
        };
        Ok(created(format!("/v1/orgs/{}/users/{}", user.org, user.id), of_user(&user)))
    }

    async fn create_key(&self, org: &str) -> Result<Response<Bytes>, ApiError> {
        let input::CreateKeyBody { name, user, policy, id, sha256 } = json_input::body(self.request)?;
        let request = NewKeyRequest { user: &user, name: &name, policy };
        let source = SecretSource::from_operands(id, sha256.as_deref())?;
        let new = self.management.create_key(&self.actor, org, request, source, self.request.now).await?;
        Ok(created(format!("/v1/keys/{}", new.key.id), with_secret(&new)))
    }

    /// Creates the key with a digest, or shows the one that there is.
    async fn put_key(&self, org: &str, sha256: &str) -> Result<Response<Bytes>, ApiError> {
        let input::PutKeyBody { name, user, policy, id } = json_input::body(self.request)?;
        let request = NewKeyRequest { user: &user, name: &name, policy };
        let put = self.management.put_key_by_digest(&self.actor, org, sha256, id, request, self.request.now).await?;
        if put.created {
            return Ok(created(format!("/v1/keys/{}", put.key.id), of_key(&put.key)));
        }
        let must_be_new =
            self.request.headers.get(IF_NONE_MATCH).is_some_and(|tag| tag.as_bytes().trim_ascii() == b"*");
        if must_be_new { Err(ApiError::Exists) } else { Ok(of_key(&put.key)) }
    }

    async fn import_key(&self, org: &str) -> Result<Response<Bytes>, ApiError> {
        let input::ImportKeyBody { user, sha256, id, name, limits, policy, disabled } = json_input::body(self.request)?;
        let import = KeyImport { org, user: &user, sha256: &sha256, id, name: &name, limits, policy, disabled };
        let key = self.management.import_key(&self.actor, import, self.request.now).await?;
        Ok(created(format!("/v1/keys/{}", key.id), of_key(&key)))
    }

    async fn rotate_key(&self, id: KeyId) -> Result<Response<Bytes>, ApiError> {
        let input::RotateKeyBody { overlap_seconds, expected_rotated, sha256 } =
            json_input::optional_body(self.request)?;
        let overlap = overlap_seconds.map(|seconds| Duration::from_secs(seconds.0));
        let rotation = Rotation::new(overlap).with_digest(sha256.as_deref())?;
        let rotation = expected_rotated.map_or(rotation, |rotated| rotation.after(rotated));
        Ok(with_secret(&self.management.rotate_key(&self.actor, id, rotation, self.request.now).await?))
    }

    async fn create_token(&self) -> Result<Response<Bytes>, ApiError> {
        let settings = json_input::body(self.request)?;
        let new = self.management.create_token(&self.actor, settings, self.request.now).await?;
        let mut body = json!(new.token);
        body["token"] = json!(new.secret.expose());
        Ok(created(format!("/v1/tokens/{}", new.token.id), response::json(StatusCode::OK, &body)))
    }
}

/// A key with its secret, which is shown this once.
fn with_secret(new: &NewKey) -> Response<Bytes> {
    let mut body = json!(new.key);
    body["key"] = json!(new.api_key.as_ref().map(ApiKey::expose));
    if let Some(warning) = &new.warning {
        body["warning"] = json!(warning);
    }
    response::record(StatusCode::OK, &body, new.key.etag)
}

fn of_org(org: &Org) -> Response<Bytes> {
    response::record(StatusCode::OK, org, org.etag)
}

fn of_user(user: &User) -> Response<Bytes> {
    response::record(StatusCode::OK, user, user.etag)
}

fn of_key(key: &Key) -> Response<Bytes> {
    response::record(StatusCode::OK, key, key.etag)
}

/// The response that shows a record, of one that was created.
fn created(location: String, mut response: Response<Bytes>) -> Response<Bytes> {
    *response.status_mut() = StatusCode::CREATED;
    let location = HeaderValue::try_from(location).expect("ids are visible ASCII");
    response.headers_mut().insert(LOCATION, location);
    response
}

fn invalid_body(what: &str) -> ApiError {
    json_input::InputError::Body(what.to_owned()).into()
}
