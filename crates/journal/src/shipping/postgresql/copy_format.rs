//! Records in the binary format of COPY (PostgreSQL documentation, "COPY", "Binary Format").

use std::fmt::{self, Write as _};
use std::net::IpAddr;

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::audit::Record;
use domain::clock::Micros;

/// The columns, in the order in which a row has them.
pub(super) const COLUMNS: &str = "id, time, gateway, key_id, user_id, org_id, auth_method, ip, user_agent, action, \
                                  method, path, provisional, outcome, status, duration_us, request_bytes, \
                                  response_bytes, count, last_time, addresses, ips, trace_id, actor, subject, \
                                  token_id, cost, budget";
/// Their number.
const COLUMN_COUNT: i16 = 28;
/// Signature, flags, and length of the extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// Microseconds from the Unix epoch to that of PostgreSQL, 2000-01-01.
const EPOCH: u64 = 946_684_800_000_000;
/// The end of the last day but one of the year 9999: a clock that is beyond it is wrong, and later
/// days have no usual text.
pub(super) const LATEST: Micros = Micros(253_402_214_399_999_999);
/// Type of the elements of `ips`.
const INET: i32 = 869;
/// Bytes of a record, about.
const ROW: usize = 400;

/// Encodes records as the input of COPY.
pub(super) fn encode<'a>(records: impl ExactSizeIterator<Item = &'a Record>) -> Bytes {
    let mut out = Row(BytesMut::with_capacity(HEADER.len() + records.len() * ROW));
    out.0.put_slice(HEADER);
    for record in records {
        out.record(record);
    }
    out.0.put_i16(-1);
    out.0.freeze()
}

struct Row(BytesMut);

impl Row {
    fn record(&mut self, record: &Record) {
        self.0.put_i16(COLUMN_COUNT);
        self.field(record.id.as_bytes());
        self.time(record.time);
        self.text(&record.gateway);
        self.shown(record.key_id);
        self.shown(record.user_id);
        self.shown(record.org_id);
        self.text(record.auth_method.as_str());
        self.optional(record.ip, Self::address);
        self.optional(record.user_agent.as_deref(), Self::text);
        self.text(&record.action);
        self.text(&record.method);
        self.text(&record.path);
        self.field(&[u8::from(record.provisional)]);
        self.text(record.outcome.name());
        self.optional(record.status, |row, status| row.field(&i32::from(status).to_be_bytes()));
        for number in [record.duration_us, record.request_bytes, record.response_bytes, record.count] {
            self.optional(number, Self::number);
        }
        self.optional(record.last_time, Self::time);
        self.optional(record.addresses, Self::number);
        self.optional((!record.ips.is_empty()).then_some(&record.ips[..]), Self::addresses);
        self.shown(record.trace_id);
        self.optional(record.actor.as_deref(), Self::text);
        self.shown(record.subject);
        self.shown(record.token_id);
        self.optional(record.cost, Self::number);
        self.optional(record.budget.as_deref(), Self::text);
    }

    fn optional<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        match value {
            Some(value) => put(self, value),
            None => self.0.put_i32(-1),
        }
    }

    fn field(&mut self, bytes: &[u8]) {
        self.framed(|row| row.0.put_slice(bytes));
    }

    /// Puts a field whose length is known when it was put.
    fn framed(&mut self, put: impl FnOnce(&mut Self)) {
        let at = self.0.len();
        self.0.put_i32(0);
        put(self);
        let length = i32::try_from(self.0.len() - at - 4).expect("texts of records are capped");
        self.0[at..at + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// PostgreSQL has no text with a NUL. The journal escapes it; a damaged or foreign one must not stop all others.
    fn text(&mut self, text: &str) {
        if text.as_bytes().contains(&0) {
            self.field(text.replace('\0', "\u{fffd}").as_bytes());
        } else {
            self.field(text.as_bytes());
        }
    }

    fn shown(&mut self, value: Option<impl fmt::Display>) {
        self.optional(value, |row, value| {
            row.framed(|row| write!(row.0, "{value}").expect("a buffer takes every write"));
        });
    }

    fn number(&mut self, number: u64) {
        self.field(&i64::try_from(number).unwrap_or(i64::MAX).to_be_bytes());
    }

    fn time(&mut self, time: Micros) {
        let Micros(since_unix) = time.min(LATEST);
        let since = i64::try_from(since_unix).unwrap_or(i64::MAX) - EPOCH.cast_signed();
        self.field(&since.to_be_bytes());
    }

    fn address(&mut self, address: IpAddr) {
        self.framed(|row| match address {
            IpAddr::V4(address) => {
                row.0.put_slice(&[2, 32, 0, 4]);
                row.0.put_slice(&address.octets());
            }
            IpAddr::V6(address) => {
                row.0.put_slice(&[3, 128, 0, 16]);
                row.0.put_slice(&address.octets());
            }
        });
    }

    fn addresses(&mut self, addresses: &[IpAddr]) {
        self.framed(|row| {
            // One dimension, no NULL, the type of the elements; then the length, and the first index.
            for number in [1, 0, INET, i32::try_from(addresses.len()).unwrap_or(0), 1] {
                row.0.put_i32(number);
            }
            addresses.iter().for_each(|address| row.address(*address));
        });
    }
}
