//! The configuration file of the embedded nats-server: loopback only, operator mode, JetStream that syncs
//! each write, bounded logs, no monitoring port. Pure text.

use std::fmt::Write as _;
use std::path::Path;

use super::HUB;
use crate::layout::Layout;

/// Each log file of the server, and how many are kept.
const LOG_BYTES: u64 = 8 << 20;
const LOG_FILES: u32 = 4;

/// What the configuration holds beside constants.
#[derive(Debug, Clone)]
pub struct Conf<'a> {
    pub layout: &'a Layout,
    pub port: u16,
    pub max_file: u64,
    pub operator_jwt: &'a str,
    pub system_account: &'a str,
    /// `(account, JWT)`, known before anybody could push them.
    pub preload: &'a [(String, String)],
}

impl Conf<'_> {
    /// The text of the file; equal input gives equal text.
    pub fn render(&self) -> String {
        let mut preload = String::new();
        for (account, token) in self.preload {
            let _ = writeln!(preload, "  {account}: \"{token}\"");
        }
        format!(
            "# Written by phalanx at start; changes made here are lost.\n\
             listen: \"127.0.0.1:{port}\"\n\
             server_name: \"{HUB}\"\n\
             pid_file: {pid}\n\
             log_file: {log}\n\
             log_size_limit: {LOG_BYTES}\n\
             log_max_num: {LOG_FILES}\n\
             ping_interval: \"5s\"\n\
             ping_max: 2\n\
             jetstream {{\n  store_dir: {store}\n  max_mem: 67108864\n  max_file: {max_file}\n  \
             domain: \"{HUB}\"\n  \
             sync_interval: always\n}}\n\
             operator: \"{operator}\"\n\
             system_account: \"{system}\"\n\
             resolver {{\n  type: full\n  dir: {resolver}\n  allow_delete: false\n  \
             interval: \"10s\"\n  limit: 1000\n}}\n\
             resolver_preload {{\n{preload}}}\n",
            port = self.port,
            pid = quoted(&self.layout.nats_pid()),
            log = quoted(&self.layout.log_file("nats-server")),
            store = quoted(&self.layout.jetstream()),
            resolver = quoted(&self.layout.resolver()),
            max_file = self.max_file,
            operator = self.operator_jwt,
            system = self.system_account,
        )
    }
}

/// A path as a string of the configuration language, which knows the escapes `\\`, `\"` and `\xNN`.
fn quoted(path: &Path) -> String {
    let mut text = String::from("\"");
    for character in path.to_string_lossy().chars() {
        match character {
            '"' | '\\' => {
                text.push('\\');
                text.push(character);
            }
            control if control.is_ascii_control() => {
                let _ = write!(text, "\\x{:02x}", u32::from(control));
            }
            plain => text.push(plain),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_listens_on_loopback_only_and_has_no_monitoring_port() {
        let layout = Layout::at("/home/a \"b\"").unwrap();
        let conf = Conf {
            layout: &layout,
            port: 4300,
            max_file: 1 << 30,
            operator_jwt: "OP",
            system_account: "SYS",
            preload: &[("A".to_owned(), "JWT".to_owned())],
        };
        let text = conf.render();
        assert!(text.contains("listen: \"127.0.0.1:4300\"\n"));
        assert!(text.contains("sync_interval: always"));
        assert!(text.contains("/home/a \\\"b\\\"/bus/jetstream"));
        assert!(!text.contains("http") && !text.contains("0.0.0.0"));
        assert_eq!(text, conf.render());
    }
}
