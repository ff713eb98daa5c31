//! stub
use super::{
    Dashboard,
    answer::{self, Answer},
    visit::Visit,
};
pub(super) async fn answer(_: &Dashboard, _: &Visit, _: &[&str]) -> Answer {
    answer::see_other("")
}
