//! The block `problems`: the page to which the types of problems link.

use http::Uri;

use domain::problem::ProblemTypes;
use platform::settings::{Reported, Section, Value};

/// Reads the block `problems`.
pub(super) fn problems(section: &mut Section<'_>) -> ProblemTypes {
    section.value_or("base", ProblemTypes::default(), page)
}

/// Reads the address of a page, to which fragments are added.
fn page(value: &Value<'_>) -> Result<ProblemTypes, Reported> {
    let text = value.text()?;
    let uri = text.parse::<Uri>().ok().filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")));
    // The parser leaves a fragment out.
    let has_more =
        text.contains(['?', '#']) || uri.as_ref().and_then(Uri::authority).is_none_or(|a| a.as_str().contains('@'));
    if uri.is_none() || has_more {
        let what = "is not the address of a page such as https://docs.example/errors: absolute, http or https, \
                    without a query, a fragment or a user";
        return value.reject(format_args!("`{text}` {what}"));
    }
    Ok(ProblemTypes::of_page(&text))
}
