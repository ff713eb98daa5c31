//! stub
use super::{Dashboard, answer::Answer, failed::Failed, visit::Visit};
pub(super) async fn answer(_: &Dashboard, _: &Visit, _: &[&str]) -> Result<Answer, Failed> {
    Err(Failed::NotFound)
}
