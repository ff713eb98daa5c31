//! The daily sweep of unused keys.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use control::management::{Actor, Management, UnixUser};
use domain::clock;
use domain::counted::counted;

/// Time from the start of a gateway to its first sweep: what it reports and replays of earlier uses is over by then.
const FIRST: Duration = Duration::from_secs(15 * 60);
/// Time from one sweep to the next.
const INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// Sweeps once a day, for as long as the gateway runs. Of several gateways each does: what one has disabled the others
/// leave as it is.
pub(super) async fn sweep_daily(management: Arc<Management>) {
    let actor = Actor::Operator(UnixUser::of_process(rustix::process::getuid().as_raw(), None));
    sleep(FIRST).await;
    loop {
        match management.sweep_unused_keys(&actor, clock::now()).await {
            Ok(0) => {}
            Ok(keys) => tracing::info!("{} disabled for being unused", counted(&keys, "key")),
            Err(error) => tracing::warn!(error = error.in_full(), "cannot look for unused keys; trying again tomorrow"),
        }
        sleep(INTERVAL).await;
    }
}
