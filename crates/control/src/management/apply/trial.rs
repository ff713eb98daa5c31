//! Management of a trial: on a state in memory with the records that documents name, and whatever the operations on
//! these look at. Nothing of it is recorded.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::document::{Document, KeySpec, OrgSpec};
use crate::management::read_queue::ReadQueue;
use crate::management::token_uses::TokenUses;
use crate::management::{Actor, Management, ManagementError};
use domain::clock::Micros;
use domain::identity::{OrgId, UserId};
use domain::key::KeyDigest;
use domain::names;
use state::{Excerpt, Org, User};

impl Management {
    /// Management of a trial for this actor, with the records that these documents name.
    ///
    /// # Errors
    /// Those of look-ups in the state.
    pub(super) async fn trial(
        &self,
        actor: &Actor,
        documents: [&Document; 2],
        now: Micros,
    ) -> Result<Self, ManagementError> {
        let mut reading = Reading { management: self, excerpt: Excerpt::default(), alike: None };
        for spec in documents.into_iter().flat_map(|document| &document.organizations) {
            reading.read_org(spec).await?;
        }
        reading.read_rights(actor).await?;
        let state = self.state.trial(reading.excerpt, now).await.map_err(|error| {
            tracing::error!(%error, "a dry run could not be made");
            ManagementError::Internal
        })?;
        Ok(Self {
            state: Arc::new(state),
            journal: self.journal.clone(),
            view: self.view.clone(),
            reads: ReadQueue::default(),
            gateway: self.gateway.clone(),
            sessions: None,
            problem_types: self.problem_types.clone(),
            duration: self.duration.clone(),
            leak_action: self.leak_action,
            token_uses: TokenUses::default(),
            announcements_limited: self.announcements_limited.clone(),
            is_trial: true,
        })
    }
}

/// Records of a state, read for a trial.
struct Reading<'a> {
    management: &'a Management,
    excerpt: Excerpt,
    /// All organizations by the looks of their names; none before one is missing.
    alike: Option<HashMap<String, Org>>,
}

impl Reading<'_> {
    async fn read_org(&mut self, spec: &OrgSpec) -> Result<(), ManagementError> {
        let state = &self.management.state;
        match state.org_by_name(&spec.name).await? {
            Some(org) => {
                self.read_members(spec, &org).await?;
                self.excerpt.orgs.insert(org.id, org);
            }
            // One whose name looks the same keeps others from it.
            None => {
                let alike = match &mut self.alike {
                    Some(alike) => alike,
                    none => {
                        let looks = |org: Org| names::looks(&org.name).map(|look| (look, org.clone()));
                        none.insert(state.orgs().await?.into_iter().flat_map(looks).collect())
                    }
                };
                let found = names::looks(&spec.name).into_iter().filter_map(|look| alike.get(&look).cloned());
                self.excerpt.orgs.extend(found.map(|org| (org.id, org)));
            }
        }
        for key in &spec.keys {
            self.read_key(key).await?;
        }
        Ok(())
    }

    async fn read_members(&mut self, spec: &OrgSpec, org: &Org) -> Result<(), ManagementError> {
        let state = &self.management.state;
        let users = spec.users.iter().flat_map(|user| [Some(user.handle()), user.responsible.clone()]);
        let owners = spec.keys.iter().map(|key| key.user.clone());
        let services = spec.federation_rules.iter().map(|rule| Some(rule.user.clone()));
        let handles: BTreeSet<String> = users.chain(owners).chain(services).flatten().collect();
        for handle in handles {
            // Removed ones, too: none of them comes back.
            for user in state.users_by_email(&handle).await? {
                if user.org == org.id {
                    self.add_user(user).await?;
                }
            }
        }
        for rule in &spec.federation_rules {
            if let Some(rule) = state.federation_rule(org.id, &rule.name).await? {
                self.read_user(org.id, rule.user).await?;
                self.excerpt.rules.insert((org.id, rule.name.clone()), rule);
            }
        }
        Ok(())
    }

    /// Reads the key that has or had the digest, and the one with the id.
    async fn read_key(&mut self, spec: &KeySpec) -> Result<(), ManagementError> {
        let state = &self.management.state;
        let digest = spec.sha256.as_deref().map(KeyDigest::from_hex).transpose()?;
        let by_digest = match digest {
            Some(digest) => state.key_of(&digest).await?.map(|id| (id, digest)),
            None => None,
        };
        // Its digest is not that of a document, or it is the key that was found by it.
        let by_id = spec.id.map(|id| (id, KeyDigest::of(id.as_str().as_bytes())));
        for (id, digest) in by_digest.into_iter().chain(by_id) {
            if let Some(key) = state.key(id).await? {
                self.read_user(key.org, key.user).await?;
                self.excerpt.keys.entry(id).or_insert((key, digest));
            }
        }
        Ok(())
    }

    /// Reads what the rights of the actor follow from: the token, and the administrators of the organization.
    async fn read_rights(&mut self, actor: &Actor) -> Result<(), ManagementError> {
        let state = &self.management.state;
        if let Actor::Program(program) = actor {
            self.excerpt.token = Some(program.token.clone());
        }
        let (Some(org), Some(_)) = (actor.org(), actor.bounded_user()) else { return Ok(()) };
        self.excerpt.orgs.extend(state.org(org).await?.map(|org| (org.id, org)));
        let admins = state.users(org).await?.into_iter().filter(User::is_admin);
        self.excerpt.users.extend(admins.map(|user| (user.id, user)));
        Ok(())
    }

    async fn read_user(&mut self, org: OrgId, user: UserId) -> Result<(), ManagementError> {
        if self.excerpt.users.contains_key(&user) {
            return Ok(());
        }
        match self.management.state.member(org, user).await? {
            Some((org, user)) => {
                self.excerpt.orgs.insert(org.id, org);
                self.add_user(user).await
            }
            None => Ok(()),
        }
    }

    /// Adds a user with the person who is responsible for it.
    async fn add_user(&mut self, user: User) -> Result<(), ManagementError> {
        if let Some(person) = user.responsible {
            let person = self.management.state.member(user.org, person).await?;
            self.excerpt.users.extend(person.map(|(_, person)| (person.id, person)));
        }
        self.excerpt.users.insert(user.id, user);
        Ok(())
    }
}
