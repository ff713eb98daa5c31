//! Codec of decisions between the process that decides and one that has handed its state over.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::UnboundedSender;

use super::budgets::Budgets;
use super::successor_permit::SuccessorPermit;
use crate::{Admitted, Decision, Permit, Reservation, Validity};
use domain::budget::BudgetTotal;
use domain::clock::Micros;
use domain::identity::{AuthMethod, OrgId, Permission, Principal, PrincipalHeaders, UserId};
use domain::key::{KeyDigest, KeyId};
use domain::quota::RateLimitStatus;
use domain::refusal::Refusal;

/// A decision, as it travels. The slot of an admitted request stays with the process that decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionRecord {
    principal: Option<PrincipalRecord>,
    rate_limit: Option<RateLimitStatus>,
    /// Its reservation in a budget: the total of its subject, and the units of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reserved: Option<(BudgetTotal, u64)>,
    result: DecisionResult,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum DecisionResult {
    /// Number of the use, and end of the credential's validity.
    Admitted(u64, Micros),
    /// The refusal, by its code on the wire to Redis.
    Denied(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PrincipalRecord {
    key: Option<KeyId>,
    user: UserId,
    org: OrgId,
    method: AuthMethod,
    permissions: Vec<Permission>,
}

impl DecisionRecord {
    /// Encodes a decision. Returns its slot as well, which is to be held until it is released.
    pub fn new(decision: Decision) -> (Self, Option<Permit>) {
        match decision {
            Decision::Admitted(Admitted { principal, rate_limit, number, validity, permit, .. }) => {
                let result = DecisionResult::Admitted(number, validity.until());
                let principal = Some(PrincipalRecord::new(&principal));
                let reserved = permit.reservation().map(|reserved| (reserved.total, reserved.units));
                (Self { principal, rate_limit: Some(rate_limit), reserved, result }, Some(permit))
            }
            Decision::Denied { refusal, principal, rate_limit } => {
                let code = refusal.row().redis_code.unwrap_or_default();
                let principal = principal.as_deref().map(PrincipalRecord::new);
                (Self { principal, rate_limit, reserved: None, result: DecisionResult::Denied(code) }, None)
            }
        }
    }

    /// Decodes a decision about the key with a digest, whose slot has this number, to be sent to `released`; none when
    /// it is of another version.
    pub(super) fn into_decision(
        self,
        digest: KeyDigest,
        number: u64,
        released: &UnboundedSender<u64>,
        budgets: &Budgets,
    ) -> Option<Decision> {
        let principal = self.principal.map(|principal| Arc::new(principal.into_principal()));
        match self.result {
            DecisionResult::Admitted(uses, until) => {
                // Made first: whatever is missing, the slot is released.
                let permit = Permit::Successor(SuccessorPermit::new(number, released.clone()));
                let permit = match self.reserved {
                    Some((total, units)) => {
                        permit.with_reservation(Reservation::embedded(total, units, budgets.meter(total.subject)))
                    }
                    None => permit,
                };
                Some(Decision::Admitted(Admitted {
                    principal: principal?,
                    rate_limit: self.rate_limit?,
                    number: uses,
                    provisional: false,
                    validity: Validity::new(digest, until),
                    permit,
                }))
            }
            DecisionResult::Denied(code) => {
                let refusal = Refusal::ALL.iter().find(|refusal| refusal.row().redis_code == Some(code))?;
                Some(Decision::Denied { refusal: *refusal, principal, rate_limit: self.rate_limit })
            }
        }
    }
}

impl PrincipalRecord {
    fn new(principal: &Principal) -> Self {
        let permissions = principal.headers.permissions();
        let permissions = permissions.to_str().unwrap_or_default();
        let permissions = permissions.split(',').filter_map(|permission| permission.parse().ok()).collect();
        let Principal { key_id, user_id, org_id, method, .. } = *principal;
        Self { key: key_id, user: user_id, org: org_id, method, permissions }
    }

    fn into_principal(self) -> Principal {
        let Self { key, user, org, method, permissions } = self;
        let headers = PrincipalHeaders::new(user, org, &permissions);
        Principal { key_id: key, user_id: user, org_id: org, method, headers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_denial_of_a_state_is_decoded_as_it_was_encoded() {
        let (released, _numbers) = tokio::sync::mpsc::unbounded_channel();
        for refusal in Refusal::ALL.iter().filter(|refusal| refusal.row().redis_code.is_some()) {
            let denied = Decision::Denied { refusal: *refusal, principal: None, rate_limit: None };
            let (record, permit) = DecisionRecord::new(denied);
            assert!(permit.is_none());
            let record: DecisionRecord = serde_json::from_slice(&serde_json::to_vec(&record).unwrap()).unwrap();
            match record.into_decision(KeyDigest::of(b"any"), 1, &released, &Budgets::default()) {
                Some(Decision::Denied { refusal: decoded, .. }) => assert_eq!(decoded, *refusal),
                other => panic!("{other:?}"),
            }
        }
    }
}
