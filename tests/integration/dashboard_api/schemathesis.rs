//! The API tested by schemathesis: valid and invalid requests generated from the OpenAPI document must get documented
//! responses.

use super::fixture::{API, SessionUser, Setup};
use crate::openapi::{CHECKS, Schemathesis};

/// Configured as the document's credential, the session is left out where schemathesis tests its absence.
const AUTH: &str = "[auth.openapi.session]\napi_key = \"${CREDENTIAL}\"\n";

/// Tests the operations that these options select, with a user's session.
fn run(setup: &Setup, person: &SessionUser<'_>, options: &[&str]) {
    let address = setup.address();
    let (_, credential) = person.cookie.split_once('=').unwrap();
    let api = Schemathesis {
        document: format!("http://{address}/settings/api/openapi.json"),
        url: format!("http://{address}{API}"),
        credential,
        // Of another organization than the chosen one, a person is told no more than that.
        config: &format!(
            "{AUTH}{}\n[parameters]\n\"path.org\" = \"{}\"\n",
            CHECKS.replace(r#""401", "404", "405""#, r#""401", "403", "404", "405""#),
            setup.org
        ),
    };
    api.run(&[&["--header", "Sec-Fetch-Site: same-origin"], options].concat());
    assert_eq!(person.get("/session").status, 200, "the session is still valid");
}

#[test]
fn api_conforms_to_its_document() {
    // With the default limit, most requests would be refused.
    let setup = Setup::with_limit("{ requests: 1000000, per: 1m }");
    let ada = setup.admin();
    ada.key("laptop");
    run(&setup, &ada, &["--exclude-operation-id", "signOut", "--exclude-operation-id", "endSession"]);
    // Apart from the others: schemathesis would find its own session in another response, and end it. Signing out,
    // which ends the session of the run, is covered by other tests.
    run(&setup, &ada, &["--include-operation-id", "endSession", "--phases", "examples,coverage,fuzzing"]);
    let made = ada.get("/keys").json()["items"].as_array().unwrap().len();
    assert!(made > 1, "schemathesis created no key: was it signed in?");
}
