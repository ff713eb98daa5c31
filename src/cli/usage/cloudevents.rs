//! Usage as CloudEvents 1.0 in JSON: the structured mode on each line, or the batch format.
//!
//! - The id of an event is made of its period and subject, so the same usage has the same id, however often it is
//!   exported; the source is the gateway. A receiver that takes each source and id once bills once.
//! - Only final rows become events: what is sent under an id never changes. The others are withheld, and counted on
//!   standard error.

use std::io::{self, Write as _};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use super::present::{UsageItem, subject_name};
use crate::cli::output;
use ::control::management::UsageSummary;
use domain::clock::Micros;
use domain::counted::Counted;
use journal::audit::{BillingPeriod, UsageRow};

/// An event with its attributes and data.
#[derive(Serialize)]
struct CloudEvent<'a> {
    specversion: &'static str,
    id: String,
    source: String,
    #[serde(rename = "type")]
    kind: String,
    subject: String,
    #[serde(with = "domain::clock::rfc3339")]
    time: Micros,
    datacontenttype: &'static str,
    data: UsageItem<'a>,
}

impl<'a> CloudEvent<'a> {
    fn new(usage: &UsageSummary, row: &'a UsageRow) -> Self {
        let by = subject_name(usage.by);
        let per = usage.per;
        let subject = row.subject.to_string();
        let gateway = utf8_percent_encode(row.gateway.as_deref().unwrap_or_default(), NON_ALPHANUMERIC);
        Self {
            specversion: "1.0",
            id: format!("{per}:{}:{by}:{subject}", per.label(row.period.start)),
            source: format!("/keygate/gateways/{gateway}"),
            kind: format!("keygate.usage.{by}.{per}.v1"),
            subject,
            time: row.period.end,
            datacontenttype: "application/json",
            data: UsageItem::new(usage, row),
        }
    }
}

/// Prints the final rows as events, and notes how many others there are.
pub(super) fn print(usage: &UsageSummary, as_batch: bool) -> io::Result<()> {
    let finals = usage.items.iter().filter(|item| item.is_final);
    let events: Vec<_> = finals.map(|item| CloudEvent::new(usage, &item.row)).collect();
    let mut out = io::BufWriter::new(io::stdout().lock());
    if as_batch {
        serde_json::to_writer(&mut out, &events)?;
        writeln!(out)?;
    } else {
        events.iter().try_for_each(|event| writeln!(out, "{}", output::json_text(event)?))?;
    }
    out.flush()?;
    let withheld: Vec<_> = usage.items.iter().filter(|item| !item.is_final).map(|item| &item.row).collect();
    note_withheld(usage.per, &withheld);
    Ok(())
}

fn note_withheld(per: BillingPeriod, withheld: &[&UsageRow]) {
    let Some(first) = withheld.iter().min_by_key(|row| row.period) else { return };
    let count = withheld.len();
    let open = withheld.iter().map(|row| row.open).sum::<u64>();
    let period = per.label(first.period.start);
    let (unit, again) = match per {
        BillingPeriod::Day => ("day", "tomorrow"),
        BillingPeriod::Month => ("month", "next month"),
    };
    let rows = Counted(count, "row");
    let why = match open {
        0 => format!("their {unit} is not over, or records of it are still to come"),
        open => format!("their {unit} is not over, or requests of it are open ({open})"),
    };
    output::note(format_args!("{rows} from {period} on not exported yet: {why}. Run again {again}."));
}
