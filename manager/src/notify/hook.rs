//! `[[notify]]` of the settings: for what, and to which program or web hook. The address of a web hook is a secret: it
//! is shown without its path, credentials and query everywhere.

use std::fmt;

use sha2::{Digest, Sha256};

use super::notice::Kind;
use crate::config::Origin;
use crate::runfile::fields::Fields;
use crate::runfile::format::node::Node;
use crate::runfile::problem::{Collector, suggestion};
use crate::runfile::units::duration_ms;

const KEYS: &[&str] = &["on", "command", "webhook", "timeout"];
const TIMEOUT_MS: u64 = 10_000;
const TIMEOUT_MS_MAX: u64 = 5 * 60 * 1_000;

/// An address of which only the host may be shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Address(String);

impl Address {
    fn parse(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
        let host = host.map(|host| host.rsplit('@').next().unwrap_or_default());
        let is_plain = text.chars().all(|c| !c.is_control() && !c.is_whitespace());
        match host {
            Some(host) if !host.is_empty() && !host.starts_with(':') && is_plain => Ok(Self(text.to_owned())),
            // What was written is not repeated: it may hold a token.
            _ => Err("must be an address that begins with http:// or https:// and names a host".to_owned()),
        }
    }

    /// For the request alone, still with its credentials.
    fn secret(&self) -> &str {
        &self.0
    }

    /// For the request alone: the address without credentials, and the credentials as `user:password`.
    pub(super) fn request(&self) -> (String, Option<Vec<u8>>) {
        let whole = || (self.0.clone(), None);
        let Some((scheme, rest)) = self.0.split_once("://") else { return whole() };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        let Some((credentials, host)) = authority.rsplit_once('@') else { return whole() };
        (format!("{scheme}://{host}{tail}"), Some(percent_decoded(credentials)))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("", &self.0));
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        write!(f, "{scheme}://{}/…", host.rsplit('@').next().unwrap_or_default())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// RFC 3986, section 2.1. What is no escape stays as it is.
fn percent_decoded(text: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits =
            after.get(..2).filter(|digits| first == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        let byte = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(byte.unwrap_or(first));
        rest = if byte.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    decoded
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum To {
    Command(Vec<String>),
    Webhook(Address),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    pub on: Vec<Kind>,
    pub to: To,
    /// Of one delivery.
    pub timeout_ms: u64,
    pub origin: Origin,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.to {
            To::Command(words) => write!(f, "command {}", words.first().map_or("", String::as_str)),
            To::Webhook(address) => write!(f, "webhook {address}"),
        }
    }
}

impl Hook {
    /// The same as long as it goes to the same place: how far it has come is kept under this name.
    #[must_use]
    pub fn id(&self) -> String {
        let mut hasher = Sha256::new();
        match &self.to {
            To::Command(words) => {
                for word in words {
                    hasher.update(word.len().to_be_bytes());
                    hasher.update(word);
                }
            }
            To::Webhook(address) => hasher.update(address.secret()),
        }
        let digest = data_encoding::HEXLOWER.encode(&hasher.finalize());
        digest.get(..16).unwrap_or(&digest).to_owned()
    }

    /// Takes what another, to the same place, is for.
    pub fn merge(&mut self, other: Self) {
        self.on.extend(other.on.iter().filter(|kind| !self.on.contains(kind)).copied().collect::<Vec<_>>());
        self.timeout_ms = other.timeout_ms;
        self.origin = other.origin;
    }

    /// One table of the list; `None` when something was wrong with it.
    pub fn read(node: &Node, origin: Origin, problems: &mut Collector) -> Option<Self> {
        let before = problems.count();
        let mut fields = Fields::open(node, "notify", KEYS, None, problems)?;
        let mut on = Vec::new();
        for (at, word) in fields.texts("on") {
            match Kind::from_word(&word) {
                Some(kind) if !on.contains(&kind) => on.push(kind),
                Some(_) => {}
                None => {
                    let hint = suggestion(&word, Kind::ALL.iter().map(|kind| kind.as_str()));
                    fields.complain(at, format!("on: {word:?} is nothing that is notified of{hint}"));
                }
            }
        }
        if on.is_empty() && fields.problems.count() == before {
            let all: Vec<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
            fields.complain(node.at, format!("on is missing; it is a list of: {}", all.join(", ")));
        }
        let command = fields.program("command");
        let webhook = fields.parsed("webhook", "an address", Address::parse);
        let timeout_ms = fields.parsed("timeout", "a duration", duration_ms).unwrap_or(TIMEOUT_MS);
        if timeout_ms == 0 || timeout_ms > TIMEOUT_MS_MAX {
            fields.complain(fields.place("timeout"), "timeout must be above 0 and at most 5m");
        }
        let to = match (command, webhook) {
            (Some(command), None) => Some(To::Command(command)),
            (None, Some(address)) => Some(To::Webhook(address)),
            (Some(_), Some(_)) => {
                fields.complain(node.at, "both command and webhook are given; write two of [[notify]]");
                None
            }
            (None, None) => {
                if fields.get("command").is_none() && fields.get("webhook").is_none() {
                    fields.complain(node.at, "neither command nor webhook is given");
                }
                None
            }
        };
        let to = to.filter(|_| problems.count() == before)?;
        Some(Self { on, to, timeout_ms, origin })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_never_shown_whole() {
        let secret = "https://user:pass@hooks.example.org:8443/services/T00/B00?token=s3cr3t#x";
        let address = Address::parse(secret).unwrap();
        for shown in [address.to_string(), format!("{address:?}")] {
            assert_eq!(shown, "https://hooks.example.org:8443/…");
        }
        let (sent, credentials) = address.request();
        assert_eq!(sent, "https://hooks.example.org:8443/services/T00/B00?token=s3cr3t#x");
        assert_eq!(credentials.unwrap(), b"user:pass");
        let escaped = Address::parse("http://a%3ab:p%40ss%2@h/%41").unwrap().request();
        assert_eq!(escaped, ("http://h/%41".to_owned(), Some(b"a:b:p@ss%2".to_vec())));
        assert_eq!(Address::parse("http://h?a@b").unwrap().request(), ("http://h?a@b".to_owned(), None));
        for wrong in ["ftp://s3cr3t.example", "s3cr3t", "http://", "https://:80/", "http://a b/s3cr3t"] {
            let said = Address::parse(wrong).unwrap_err();
            assert!(!said.contains("s3cr3t"), "{said}");
        }
    }
}
