//! Fields of compact lines: each after a tab, empty when the value is absent.

use std::net::IpAddr;

use super::{frame, id_text};
use domain::budget::Cost;
use domain::identity::AuthMethod;

/// Text that is there and empty. No escaped text is a single backslash.
pub(crate) const EMPTY_TEXT: &str = "\\";

/// The letter of a method of authentication.
pub(crate) fn auth_letter(method: AuthMethod) -> &'static str {
    match method {
        AuthMethod::ApiKey => "k",
        AuthMethod::Session => "s",
        AuthMethod::AdminSocket => "a",
        AuthMethod::Token => "t",
    }
}

pub(crate) fn push_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'\t');
    out.extend_from_slice(text.as_bytes());
}

/// Appends `p` for a provisional use, and its cost, if that is not one.
pub(crate) fn push_flags(out: &mut Vec<u8>, provisional: bool, cost: Cost) {
    push_text(out, if provisional { "p" } else { "" });
    if cost.units() > 1 {
        // One token, whatever it reserved.
        if cost.tokens() == 1 {
            out.push(b'm');
        }
        frame::push_decimal(out, cost.units().into());
    }
}

pub(crate) fn push_id(out: &mut Vec<u8>, id: Option<u128>) {
    out.push(b'\t');
    if let Some(id) = id {
        out.extend_from_slice(&id_text::encode(id));
    }
}

pub(crate) fn push_number(out: &mut Vec<u8>, number: Option<u64>) {
    out.push(b'\t');
    if let Some(number) = number {
        frame::push_decimal(out, number);
    }
}

/// Appends a number with a sign when it is negative.
pub(crate) fn push_signed(out: &mut Vec<u8>, number: i64) {
    out.push(b'\t');
    if number < 0 {
        out.push(b'-');
    }
    frame::push_decimal(out, number.unsigned_abs());
}

pub(crate) fn push_address(out: &mut Vec<u8>, ip: Option<IpAddr>) {
    out.push(b'\t');
    match ip {
        Some(IpAddr::V4(ip)) => {
            for (i, octet) in ip.octets().into_iter().enumerate() {
                if i > 0 {
                    out.push(b'.');
                }
                frame::push_decimal(out, octet.into());
            }
        }
        Some(IpAddr::V6(ip)) => out.extend_from_slice(ip.to_string().as_bytes()),
        None => {}
    }
}
