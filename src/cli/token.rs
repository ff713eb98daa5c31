//! `keygate token`: the tokens by which programs manage organizations, users and keys over the network.

use std::io;

use clap::Subcommand;
use serde_json::json;

use super::call::Call;
use super::installation::Installation;
use super::list::{self, Row};
use super::output::{joined, line, note, or_dash, seconds, texts, word};
use super::show::{self, Fields, Shown, time};
use super::table::Column;
use super::{CliError, RemoteCommand};
use ::control::management::expiry::parse_expiry;
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
                list::print::<Token>(installation, call, "there are no tokens", self.format)
            }
            Command::Revoke { token, with_descendants } => {
                let query = json!({ "with_descendants": with_descendants });
                let call = Call::delete(&["tokens", &token.to_string()]).with_query(&query);
                show::perform::<Token>(installation, &call, self.format)
            }
        }
    }
}

impl Row for Token {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::new("ID", 1, |token| token.id.to_string()),
        Column::new("NAME", 2, |token| token.name.clone()),
        Column::new("ORG", 7, |token| token.org.map_or_else(|| "all".to_owned(), |org| org.to_string())),
        Column::new("STATUS", 3, |token| word(token.status)),
        Column::values("ALLOW", 5, |token| texts(&token.allow)),
        Column::values("NETWORKS", 8, |token| texts(&token.networks)),
        Column::new("EXPIRES", 4, |token| seconds(token.expires)),
        Column::new("LAST USED", 9, |token| time(token.last_use.as_ref().map(|last| last.time))),
        Column::new("FROM", 10, |token| or_dash(token.last_use.as_ref().and_then(|last| last.ip.as_ref()))),
        Column::new("AGENT", 11, |token| or_dash(token.last_use.as_ref().and_then(|last| last.user_agent.as_ref()))),
        Column::new("BY", 6, |token| token.created_by.label()),
    ];
}

impl Shown for Token {
    fn fields(&self) -> Fields {
        let mut fields = self.named(&["id", "name", "organization", "status", "allow", "networks"]);
        fields.extend([
            ("certificate", or_dash(self.client_san.as_ref())),
            ("created", seconds(self.created)),
            ("by", self.created_by.label()),
            ("expires", seconds(self.expires)),
            ("revoked", time(self.revoked)),
            ("last used", time(self.last_use.as_ref().map(|last| last.time))),
            ("from", or_dash(self.last_use.as_ref().and_then(|last| last.ip.as_ref()))),
            ("agent", or_dash(self.last_use.as_ref().and_then(|last| last.user_agent.as_ref()))),
        ]);
        fields.extend(self.descendants.iter().flat_map(descendant_fields));
        fields
    }
}

/// The fields of what a token has made.
fn descendant_fields(made: &Descendants) -> [(&'static str, String); 3] {
    let names = if made.ended { ["rules removed", "keys revoked"] } else { ["rules in force", "keys in force"] };
    [
        ("tokens revoked", joined(&made.tokens)),
        (names[0], joined(&made.federation_rules)),
        (names[1], joined(&made.keys)),
    ]
}

impl Shown for NewToken {
    /// The token alone on standard output, the rest on standard error.
    fn show(&self) -> io::Result<()> {
        let Token { id, name, expires, .. } = &self.token;
        let expires = seconds(expires);
        note(format_args!("token {id} `{name}`, valid until {expires}; the token is shown only once:"));
        line(self.secret.expose())
    }

    fn way_out(&self) -> Option<String> {
        let id = self.token.id;
        let made = format!("token {id} was created, and its secret is lost");
        Some(format!("{made}; revoke it (`keygate token revoke {id}`), and create another one"))
    }
}
