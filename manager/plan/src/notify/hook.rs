//! `[[notify]]` of the settings: for what and of which runs, and to which program or web hook. The address of a web hook is a secret: it
//! is shown without its path, credentials and query everywhere.

use std::fmt;

use protocol::ids::Name;
use protocol::notify::{NoticeKind as Kind, Told};
use sha2::{Digest, Sha256};

use crate::config::Origin;
use crate::runfile::fields::Fields;
use crate::runfile::format::node::Node;
use crate::runfile::problem::{Collector, suggestion};
use crate::runfile::units::duration_ms;

const KEYS: &[&str] = &["name", "only", "on", "command", "webhook", "timeout"];
/// Between a name and what it is told of, on the command line.
pub const SEPARATOR: char = ':';
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
    pub fn request(&self) -> (String, Option<Vec<u8>>) {
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

/// What it is told of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scope {
    /// All that happens.
    #[default]
    All,
    /// Runs that ask for it.
    Asked,
}

/// What the run that a fact is of asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// It is of no run.
    NoRun,
    Run(Vec<Told>),
    /// The record of the run is gone.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// By which runs ask for it.
    pub name: Option<Name>,
    pub scope: Scope,
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

    /// Whether it is told of this. What the run itself says decides for that run: it may be less or more than what the
    /// hook is for. Of a run whose record is gone nobody knows whether it asked.
    #[must_use]
    pub fn is_told(&self, kind: Kind, asked: &Asked) -> bool {
        let told = match asked {
            Asked::Run(told) => told.iter().find(|told| self.name.as_ref() == Some(&told.to)),
            Asked::NoRun | Asked::Unknown => None,
        };
        match (told, self.scope) {
            (Some(told), _) if !told.on.is_empty() => told.on.contains(&kind),
            (Some(_), _) | (None, Scope::All) => self.on.contains(&kind),
            (None, Scope::Asked) => false,
        }
    }

    /// Takes what another, to the same place, is for.
    ///
    /// # Errors
    /// They have two names, or are told of different runs: one place has one hook.
    pub fn merge(&mut self, other: Self) -> Result<(), String> {
        let place = &self.origin.place;
        if let (Some(own), Some(name)) = (&self.name, &other.name)
            && own != name
        {
            return Err(format!("it goes to the same place as {own:?} in {place}; give both one name"));
        }
        if self.scope != other.scope {
            return Err(format!("it goes to the same place as that in {place}; give `only` in both or none"));
        }
        self.name = self.name.take().or(other.name);
        self.on.extend(other.on.iter().filter(|kind| !self.on.contains(kind)).copied().collect::<Vec<_>>());
        self.timeout_ms = other.timeout_ms;
        self.origin = other.origin;
        Ok(())
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
        let name = fields.parsed("name", "a name", |text| {
            let name = text.parse::<Name>().map_err(|error| error.to_string())?;
            match text.contains(SEPARATOR) {
                true => Err(format!("{name:?} holds a {SEPARATOR:?}, which ends a name in --notify")),
                false => Ok(name),
            }
        });
        let scope = fields.word("only", &[("asked", Scope::Asked)]).unwrap_or_default();
        if scope == Scope::Asked && fields.get("name").is_none() {
            fields.complain(fields.place("only"), "only: a hook that runs ask for needs a name");
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
        Some(Self { name, scope, on, to, timeout_ms, origin })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_says_decides_for_that_run_and_only_for_it() {
        let hook = |scope| Hook {
            name: Some("pager".parse().unwrap()),
            scope,
            on: vec![Kind::Failed, Kind::RunEnd],
            to: To::Command(vec!["x".to_owned()]),
            timeout_ms: 1,
            origin: Origin { layer: crate::config::layer::Layer::User, place: String::new() },
        };
        let asks =
            |to: &str, on: &[Kind]| Asked::Run(vec![Told { to: to.parse().unwrap(), on: on.to_vec() }]);
        let (all, asked) = (hook(Scope::All), hook(Scope::Asked));
        for (run, failed, blocked) in [
            (asks("pager", &[]), [true, true], [false, false]),
            (asks("pager", &[Kind::Blocked]), [false, false], [true, true]),
            (asks("other", &[Kind::Blocked]), [true, false], [false, false]),
            (Asked::Run(Vec::new()), [true, false], [false, false]),
            (Asked::NoRun, [true, false], [false, false]),
            (Asked::Unknown, [true, false], [false, false]),
        ] {
            let told = |kind| [all.is_told(kind, &run), asked.is_told(kind, &run)];
            assert_eq!((told(Kind::Failed), told(Kind::Blocked)), (failed, blocked), "{run:?}");
        }
        let nameless = Hook { name: None, ..hook(Scope::All) };
        assert!(nameless.is_told(Kind::Failed, &asks("pager", &[Kind::Blocked])));
    }

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
