//! The bus's store: survives everything. Records are written one key at a time, by the leader; reports by
//! hosts, where the last to arrive wins, even if an older put was overtaken on its way.

use std::collections::BTreeMap;

use manager_core::StoredRecord;
use protocol::ids::AgentId;
use protocol::report::Report;

#[derive(Clone, Debug, Default)]
pub struct Store {
    records: BTreeMap<(&'static str, String), Vec<u8>>,
    reports: BTreeMap<AgentId, Report>,
    /// The leader's number, raised at each start of a manager.
    pub fencing: u64,
}

impl Store {
    pub fn write(&mut self, record: StoredRecord) {
        let key = (record.bucket, record.key);
        match record.value {
            Some(value) => self.records.insert(key, value),
            None => self.records.remove(&key),
        };
    }

    #[must_use]
    pub fn records(&self) -> Vec<StoredRecord> {
        let record = |((bucket, key), value): (&(&'static str, String), &Vec<u8>)| StoredRecord {
            bucket,
            key: key.clone(),
            value: Some(value.clone()),
        };
        self.records.iter().map(record).collect()
    }

    pub fn put_report(&mut self, report: Report) {
        self.reports.insert(report.agent, report);
    }

    #[must_use]
    pub fn reports(&self) -> Vec<Report> {
        self.reports.values().cloned().collect()
    }
}
