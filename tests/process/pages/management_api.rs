//! Every command of `docs/management-api.md`, against a gateway with query-store behind it.

use crate::procedures::Office;
use crate::support::page::block;
use crate::support::{Shell, free_address};

#[test]
fn program_manages_an_organization_as_the_page_says() {
    let office = Office::embedded();
    let address = free_address();
    let listener = format!("listen: [{{ address: '{address}', serves: management }}, ");
    office.setup.write(&office.setup.text().replacen("listen: [", &listener, 1));
    let gateway = office.setup.start();
    let shell = Shell::of(&office.setup).replace("127.0.0.1:9443", &address.to_string());
    // One shell: later commands use the function of the first part.
    let parts = [
        block("$ keygate token create pipeline --allow"),
        block("$ api -X PATCH http://127.0.0.1:9443/v1/"),
        block("$ api -H 'Idempotency-Key: deploy-17' ht"),
        block("$ tag=$(api http://127.0.0.1:9443/v1/org"),
        block("$ users=http://127.0.0.1:9443/v1/orgs/ac"),
    ];
    shell.follow(&parts.concat());
    gateway.stop();
}
