//! `keygate token`: the tokens by which programs manage organizations, users and keys over the network.

use std::io;

use clap::Subcommand;
use serde_json::json;

use super::call::Call;
use super::expiry::parse_expiry;
use super::installation::Installation;
use super::output::{line, note, or_dash, seconds, word};
use super::show::{self, time};
use super::{CliError, RemoteCommand, list};
use ::control::management::{Descendants, NewToken, Token, TokenSettings};
use domain::clock::Micros;
use domain::key::policy::Network;
use domain::management_token::{TokenId, TokenScope};

/// Commands of `keygate token`.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Create a token, and print it alone on its line; it is shown only this once
    Create {
        /// Name, for people
        name: String,
        /// Id or name of the only organization that it manages; without it, all
        #[arg(long)]
        org: Option<String>,
        /// Operations that it may perform, such as keys:read,keys:create
        #[arg(long, required = true, value_delimiter = ',', value_name = "LIST")]
        allow: Vec<TokenScope>,
        /// Duration, date or time after which it is refused, at most 366d; 90d unless given
        #[arg(long, value_name = "EXPIRY", value_parser = parse_expiry)]
        expires: Option<Micros>,
        /// Network from which it is accepted; several may be given
        #[arg(long, value_name = "CIDR")]
        network: Vec<Network>,
        /// Name that the client's certificate has to have: a DNS name, an IP address or a URI
        #[arg(long, value_name = "NAME")]
        client_san: Option<String>,
    },
    /// List the tokens, also those that are revoked or have expired
    List {
        /// Only tokens of the organization with this id or name
        #[arg(long)]
        org: Option<String>,
    },
    /// Revoke a token and the tokens that it made, on all gateways at once
    Revoke {
        /// Token id: the ten characters after `kgm_`, as shown by `keygate token list`
        token: TokenId,
        /// Also revoke the keys and remove the federation rules that it made; the tokens that it made end anyway
        #[arg(long)]
        with_descendants: bool,
    },
}

impl RemoteCommand<Command> {
    pub(super) fn run(self, installation: &Installation) -> Result<(), CliError> {
        match self.command {
            Command::Create { name, org, allow, expires, network, client_san } => {
                let allow = allow.into_iter().collect();
                let settings = TokenSettings { name, org, allow, expires, networks: network, client_san };
                let call = Call::post(&["tokens"]).with_body(&settings).with_secret();
                show::perform::<NewToken>(installation, &call, self.format)
            }
            Command::List { org } => {
                let call = Call::get(&["tokens"]).with_query(&json!({ "org": org }));
                list::print::<Token>(installation, call, self.format)
            }
            Command::Revoke { token, with_descendants } => {
                let query = json!({ "with_descendants": with_descendants });
                let call = Call::delete(&["tokens", &token.to_string()]).with_query(&query);
                show::perform::<Token>(installation, &call, self.format)
            }
        }
    }
}

/// Prints a new token: the token alone on standard output, the rest on standard error.
pub(super) fn show_new(new: &NewToken) -> io::Result<()> {
    let token = &new.token;
    let expires = seconds(token.expires);
    note(format_args!("token {} `{}`, valid until {expires}; the token is shown only once:", token.id, token.name));
    line(new.secret.expose())
}

/// The fields of a token.
pub(super) fn token_fields(token: &Token) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("id", token.id.to_string()),
        ("name", token.name.clone()),
        ("organization", org(token)),
        ("status", word(token.status)),
        ("allow", scopes(token)),
        ("networks", networks(token)),
        ("certificate", or_dash(token.client_san.as_ref())),
        ("created", seconds(token.created)),
        ("by", token.created_by.label()),
        ("expires", seconds(token.expires)),
        ("revoked", time(token.revoked)),
    ];
    fields.extend(token.descendants.iter().flat_map(descendant_fields));
    fields
}

/// The fields of what a token has made.
fn descendant_fields(made: &Descendants) -> [(&'static str, String); 3] {
    let ids = |texts: Vec<String>| or_dash(Some(texts.join(" ")).filter(|text| !text.is_empty()));
    let names = if made.ended { ["rules removed", "keys revoked"] } else { ["rules in force", "keys in force"] };
    [
        ("tokens revoked", ids(made.tokens.iter().map(TokenId::to_string).collect())),
        (names[0], ids(made.federation_rules.clone())),
        (names[1], ids(made.keys.iter().map(|key| key.to_string()).collect())),
    ]
}

/// The row of a token in a list.
pub(super) fn token_row(token: &Token) -> Vec<String> {
    vec![
        token.id.to_string(),
        token.name.clone(),
        org(token),
        word(token.status),
        scopes(token),
        networks(token),
        seconds(token.expires),
        token.created_by.label(),
    ]
}

fn org(token: &Token) -> String {
    token.org.map_or_else(|| "all".to_owned(), |org| org.to_string())
}

fn scopes(token: &Token) -> String {
    token.allow.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(" ")
}

fn networks(token: &Token) -> String {
    or_dash(
        Some(token.networks.iter().map(Network::to_string).collect::<Vec<_>>().join(" "))
            .filter(|text| !text.is_empty()),
    )
}
