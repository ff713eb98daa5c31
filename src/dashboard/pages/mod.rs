//! stub
use super::failed::Words;
pub fn sign_in(_: &str, _: Vec<(String, String)>, _: &str, _: bool) -> Result<String, askama::Error> {
    Ok(String::new())
}
pub fn onward(_: &str, _: &str, _: &str, _: bool) -> Result<String, askama::Error> {
    Ok(String::new())
}
pub fn link(_: &str, _: &str) -> Result<String, askama::Error> {
    Ok(String::new())
}
pub fn signed_out(_: &str) -> Result<String, askama::Error> {
    Ok(String::new())
}
pub(super) fn failure(_: &str, _: &Words, _: &str) -> Result<String, askama::Error> {
    Ok(String::new())
}
