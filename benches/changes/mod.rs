//! Many changes of an embedded state at once.

use std::sync::Arc;

use state::{Change, Embedded};

/// Makes changes, handing over all of them before the first is waited for.
pub(crate) fn make(state: &Arc<Embedded>, changes: Vec<Change>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let made: Vec<_> = changes
        .into_iter()
        .map(|change| {
            let state = Arc::clone(state);
            runtime.spawn(async move { state.change(change).await })
        })
        .collect();
    runtime.block_on(async {
        for made in made {
            made.await.unwrap().unwrap();
        }
    });
}
