//! Run of a demo with two gateways, from the first process to the last: what is measured.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::bail;
use http::HeaderValue;
use serde_json::json;

use super::audit::Audit;
use super::client::{self, DemoKey, Load};
use super::gateway::Gateway;
use super::numbers::{ClientNumbers, Numbers, refilled};
use super::redis::Redis;
use super::revocation::revoke;
use super::upstream::Upstream;
use super::{CLIENTS, GATEWAYS, NAMES, Progress, choose_addresses};
use crate::cli::call::Call;
use crate::cli::calls::{create_org, create_user};
use ::control::management::{NewKey, Org, User, UserKind};

/// Runs everything in a directory. Dropping the future ends all processes.
pub(super) async fn run(dir: &Path, redis: &Path, progress: &Progress) -> anyhow::Result<Numbers> {
    progress.step.set("starting Redis and two gateways");
    let upstream = Upstream::start().await?;
    let [redis_address, addresses @ ..] = choose_addresses::<5>()?;
    let redis = Redis::start(redis, dir, redis_address).await?;
    let [mut first, mut second] = start_gateways(dir, &redis.url, &upstream, addresses).await?;
    let [load_key, revoked_key] = create_keys(&first).await?;
    let stream = client::open_stream(second.address, &revoked_key.authorization).await?;

    progress.step.set("sending requests to both gateways");
    let gateways = [first.address, second.address];
    let mut answers_before_kill = 0;
    let kill = async {
        upstream.until_held(CLIENTS / GATEWAYS).await;
        first.kill();
        answers_before_kill = progress.answered.get();
        upstream.release();
        Ok(())
    };
    let load = client::load(gateways, &load_key.authorization, &progress.answered);
    let (load, ()) = tokio::try_join!(load, kill)?;
    let forwarded = upstream.order_ids();

    progress.step.set("starting the killed gateway again");
    first.start_again().await?;
    progress.step.set("revoking a key");
    let revocation = revoke([&first, &second], &revoked_key, stream).await?;
    progress.step.set("stopping the gateways");
    tokio::try_join!(first.stop(), second.stop())?;

    let mut audit = Audit::default();
    audit.add(&first.journal())?;
    audit.add(&second.journal())?;
    let Load { ok, refused, broken, other, elapsed } = load;
    Ok(Numbers {
        clients: ClientNumbers { ok: ok.len() as u64, refused, broken, other },
        answers_before_kill,
        refilled: refilled(elapsed),
        forwarded: forwarded.len() as u64,
        audit: audit.of_load(load_key.id),
        unrecorded_answers: audit.count_unrecorded(&ok),
        unrecorded_forwarded: audit.count_unrecorded(&forwarded),
        revocation,
        revoked_audit: audit.of_revoked(revoked_key.id),
        journal_defects: audit.defects,
    })
}

/// Starts the gateways side by side, each with two of the addresses.
async fn start_gateways(
    dir: &Path,
    redis: &str,
    upstream: &Upstream,
    [first, first_admin, second, second_admin]: [SocketAddr; 2 * GATEWAYS],
) -> anyhow::Result<[Gateway; GATEWAYS]> {
    let first = Gateway::start(dir, NAMES[0], redis, [first, first_admin, upstream.addresses[0]]);
    let second = Gateway::start(dir, NAMES[1], redis, [second, second_admin, upstream.addresses[1]]);
    let (first, second) = tokio::try_join!(first, second)?;
    Ok([first, second])
}

/// Creates an organization, a user, and a key for the load and one to revoke.
async fn create_keys(gateway: &Gateway) -> anyhow::Result<[DemoKey; 2]> {
    let org: Org = gateway.perform(&create_org("demo")).await?;
    let org = org.id.to_string();
    let email = "ada@demo.example";
    gateway.perform::<User>(&create_user(&org, email, UserKind::Person, None, &[])).await?;
    let load = create_key(gateway, &org, email, "load").await?;
    let revoked = create_key(gateway, &org, email, "to be revoked").await?;
    Ok([load, revoked])
}

async fn create_key(gateway: &Gateway, org: &str, user: &str, name: &str) -> anyhow::Result<DemoKey> {
    let create = Call::post(&["orgs", org, "keys"]).with_body(&json!({ "user": user, "name": name }));
    let new: NewKey = gateway.perform(&create).await?;
    let Some(api_key) = &new.api_key else { bail!("a key was created, and the reply does not show it") };
    let mut authorization = HeaderValue::from_str(&format!("Bearer {}", api_key.expose()))?;
    authorization.set_sensitive(true);
    Ok(DemoKey { id: new.key.id, authorization })
}
