//! Documents, which are applied a part at a time.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::Answer;
use super::call::Call;
use crate::json_input;
use crate::management;
use crate::management::{Document, ManagementError, OrgSpec, run_beside};

/// Body of an application.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    organizations: Vec<OrgSpec>,
    /// Records that a dry run takes as applied before: those of other parts, from which these follow.
    #[serde(default)]
    given: Document,
}

pub(super) async fn apply(call: &Call<'_>) -> Result<Answer, ManagementError> {
    let body: Value = json_input::body(call.request)?;
    if ![&body, &body["given"]].into_iter().all(has_objects) {
        return Err(ManagementError::InvalidBody("a record is a JSON object".into()));
    }
    let body = Body::deserialize(body).map_err(|error| ManagementError::InvalidBody(error.to_string()))?;
    let Body { organizations, given } = body;
    let (management, actor, now) = (call.api.management(), call.actor, call.now());
    let document = Document { organizations };
    let application = if json_input::boolean(call.request, "dry_run")? == Some(true) {
        let (management, actor) = (Arc::clone(management), actor.clone());
        // Its state is made on a thread that serves no requests.
        let plan = async move || management::plan_document(&management, &actor, given, document, now).await;
        run_beside(plan).await.map_err(|_| ManagementError::Internal)??
    } else if given.organizations.is_empty() {
        management::apply_document(management, actor, document, now).await?
    } else {
        return Err(ManagementError::InvalidBody("`given` is for `dry_run=true`".into()));
    };
    Ok(Answer::new(&application))
}

/// Returns whether the records of a document are objects: serde also reads structs from arrays of their fields' values.
fn has_objects(document: &Value) -> bool {
    fn items<'a>(of: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
        of[list].as_array().into_iter().flatten()
    }
    let is_record = |record: &Value| record.is_object() && !record["limits"].is_array();
    let is_org = |org: &Value| {
        let lists = ["users", "federation_rules", "keys"];
        org.is_object() && !org["policy"].is_array() && lists.iter().all(|list| items(org, list).all(is_record))
    };
    !document.is_array() && items(document, "organizations").all(is_org)
}
