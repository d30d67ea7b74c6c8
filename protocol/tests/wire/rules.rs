//! The rules of a released form, for any type and for both writings, MessagePack and JSON.
//!
//! A folder holds `v1/<name>.bin` (or `.json` where JSON is what is stored), the released bytes, and beside each a
//! `<name>.twin.json`: the same for readers, the fields that every reader demands (`required`), and the maps in which
//! a field of a newer writer is no stranger but an error (`closed`: words of an enum, labels and the like). Released
//! files never change. A type that gained a field gets its new bytes in the next version's folder and keeps the old.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path as FilePath, PathBuf};

use protocol::codec;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::tree::Tree;

/// Writes what is not there yet, and only that.
const WRITE: &str = "PHALANX_WRITE_GOLDEN";
/// The folder that new bytes go to.
const CURRENT: u32 = 2;
static WRITING: std::sync::Mutex<()> = std::sync::Mutex::new(());
/// A field that no build knows.
const NEWER: &str = "from_a_newer_build";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    MessagePack,
    Json,
}

impl Form {
    const fn extension(self) -> &'static str {
        match self {
            Self::MessagePack => "bin",
            Self::Json => "json",
        }
    }

    fn read<T: DeserializeOwned>(self, bytes: &[u8]) -> Result<T, String> {
        match self {
            Self::MessagePack => codec::from_bytes(bytes).map_err(|error| chain(&error)),
            Self::Json => serde_json::from_slice(bytes).map_err(|error| chain(&error)),
        }
    }

    fn write<T: Serialize>(self, value: &T) -> Vec<u8> {
        match self {
            Self::MessagePack => codec::to_bytes(value).unwrap(),
            Self::Json => serde_json::to_vec_pretty(value).unwrap(),
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

type Decode = Box<dyn Fn(&[u8]) -> Result<(bool, Vec<u8>), String>>;

/// One message of one type.
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) type_name: &'static str,
    form: Form,
    pub(crate) bytes: Vec<u8>,
    /// Whether bytes read as this very value, and what today's encoder makes of what was read.
    pub(crate) decode: Decode,
}

impl Sample {
    pub(crate) fn of<T>(name: impl Display, value: T) -> Self
    where
        T: Serialize + DeserializeOwned + PartialEq + 'static,
    {
        Self::in_form(Form::MessagePack, name, value)
    }

    pub(crate) fn in_form<T>(form: Form, name: impl Display, value: T) -> Self
    where
        T: Serialize + DeserializeOwned + PartialEq + 'static,
    {
        let bytes = form.write(&value);
        let decode = Box::new(move |bytes: &[u8]| {
            let read: T = form.read(bytes)?;
            Ok((read == value, form.write(&read)))
        });
        Self { name: name.to_string(), type_name: std::any::type_name::<T>(), form, bytes, decode }
    }

    fn tree(&self, bytes: &[u8]) -> Tree {
        self.form.read(bytes).unwrap()
    }

    fn equal(&self, bytes: &[u8]) -> Result<bool, String> {
        (self.decode)(bytes).map(|(equal, _)| equal)
    }
}

/// Released files of one package.
pub(crate) struct Released {
    pub(crate) folder: PathBuf,
    pub(crate) samples: Vec<Sample>,
}

impl Released {
    fn file(&self, version: u32, name: &str, ending: &str) -> PathBuf {
        self.folder.join(format!("v{version}")).join(format!("{name}.{ending}"))
    }

    /// The newest released bytes of a sample, written now where that is asked for and none are like today's.
    fn newest(&self, sample: &Sample) -> Vec<u8> {
        let _one_writer = WRITING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let newest = (1..=CURRENT)
            .rev()
            .map(|version| (version, self.file(version, &sample.name, sample.form.extension())))
            .find(|(_, file)| file.exists());
        let released = newest.map(|(version, file)| (version, std::fs::read(file).unwrap()));
        let is_today = released.as_ref().is_some_and(|(_, bytes)| *bytes == sample.bytes);
        if is_today || std::env::var_os(WRITE).is_none() {
            let Some((_, bytes)) = released else {
                panic!("{} was never released: {WRITE}=1 cargo test writes it", sample.name);
            };
            return bytes;
        }
        assert!(
            released.is_none_or(|(version, _)| version < CURRENT),
            "{} is released with other bytes; they stay, new ones need the next version's folder",
            sample.name
        );
        self.write(sample);
        sample.bytes.clone()
    }

    fn write(&self, sample: &Sample) {
        let file = self.file(CURRENT, &sample.name, sample.form.extension());
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let twin = serde_json::json!({
            "type": sample.type_name.rsplit("::").next(),
            "message": sample.tree(&sample.bytes).to_json(),
            "required": required(sample),
            "closed": closed(sample),
        });
        let mut text = serde_json::to_string_pretty(&twin).unwrap();
        text.push('\n');
        write_new(&self.file(CURRENT, &sample.name, "twin.json"), text.as_bytes());
        write_new(&file, &sample.bytes);
    }

    pub(crate) fn todays_encoder_gives_the_released_bytes(&self) {
        for sample in &self.samples {
            let released = self.newest(sample);
            let same = sample.form == Form::Json && sample.tree(&released) == sample.tree(&sample.bytes);
            assert!(
                same || released == sample.bytes,
                "{}: released {:#}\ntoday {:#}",
                sample.name,
                sample.tree(&released).to_json(),
                sample.tree(&sample.bytes).to_json(),
            );
        }
    }

    pub(crate) fn todays_decoder_reads_every_released_file(&self) {
        for sample in &self.samples {
            assert_eq!(sample.equal(&self.newest(sample)), Ok(true), "{}", sample.name);
        }
        let known: BTreeSet<&str> = self.samples.iter().map(|sample| sample.name.as_str()).collect();
        assert_eq!(known.len(), self.samples.len(), "a name is used twice");
        for version in 1..=CURRENT {
            let folder = self.folder.join(format!("v{version}"));
            // A package whose types gained nothing since has no folder of a later version.
            if version > 1 && !folder.exists() {
                continue;
            }
            for file in files_of(&folder) {
                let name = file.file_name().unwrap().to_str().unwrap();
                let stem = name.split('.').next().unwrap();
                let sample = self.samples.iter().find(|sample| sample.name == stem);
                let Some(sample) = sample else { panic!("{name} is released; its sample must stay") };
                if !name.ends_with(".twin.json") {
                    let read = (sample.decode)(&std::fs::read(&file).unwrap());
                    assert!(read.is_ok(), "{}: {read:?}", file.display());
                }
            }
        }
    }

    pub(crate) fn what_an_older_writer_left_out_reads_as_its_default(&self) {
        for sample in &self.samples {
            let demanded = self.list(sample, "required");
            let tree = sample.tree(&sample.bytes);
            for field in required(sample) {
                assert!(demanded.contains(&field), "{}: {field} was optional and must stay so", sample.name);
            }
            for path in tree.maps() {
                for place in 0..tree.fields(&path).len() {
                    let least = tree.without(&path, place);
                    let Ok((_, again)) = (sample.decode)(&sample.form.write(&least)) else { continue };
                    let again = sample.tree(&again);
                    let mut field = path.clone();
                    field.push(place);
                    // A default is written out again, or it was a label of a map of labels.
                    let default_only = same_but_for(&again, &tree, &field) || again == least;
                    assert!(default_only, "{}: without {}", sample.name, tree.name_of(&field));
                }
            }
        }
    }

    pub(crate) fn a_field_of_a_newer_writer_is_skipped(&self) {
        for sample in &self.samples {
            let allowed = self.list(sample, "closed");
            for map in closed(sample) {
                assert!(allowed.contains(&map), "{}: {map:?} refuses new fields", sample.name);
            }
        }
    }

    /// So that a reviewer who reads the twins has seen the bytes.
    pub(crate) fn each_twin_says_what_its_bytes_say(&self) {
        for sample in &self.samples {
            let message = sample.tree(&self.newest(sample)).to_json();
            assert_eq!(self.twin(sample)["message"], message, "{}", sample.name);
        }
    }

    fn twin(&self, sample: &Sample) -> serde_json::Value {
        let file = (1..=CURRENT)
            .rev()
            .map(|version| self.file(version, &sample.name, "twin.json"))
            .find(|file| file.exists());
        self.newest(sample);
        let file = file.unwrap_or_else(|| self.file(CURRENT, &sample.name, "twin.json"));
        serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
    }

    fn list(&self, sample: &Sample, which: &str) -> BTreeSet<String> {
        serde_json::from_value(self.twin(sample)[which].clone()).unwrap()
    }
}

/// Fields that a message cannot be read without.
fn required(sample: &Sample) -> Vec<String> {
    let tree = sample.tree(&sample.bytes);
    let mut found = Vec::new();
    for path in tree.maps() {
        for place in 0..tree.fields(&path).len() {
            if sample.equal(&sample.form.write(&tree.without(&path, place))).is_err() {
                let mut field = path.clone();
                field.push(place);
                found.push(tree.name_of(&field));
            }
        }
    }
    found
}

/// Maps in which another field, whatever it holds, changes the message or makes it unreadable.
fn closed(sample: &Sample) -> Vec<String> {
    let tree = sample.tree(&sample.bytes);
    let nested = Tree::List(vec![Tree::Map(vec![(NEWER.to_owned(), Tree::Bool(true))])]);
    let is_closed = |path: &[usize]| {
        let newer = tree.with(path, NEWER, nested.clone());
        sample.equal(&sample.form.write(&newer)) != Ok(true)
    };
    let maps = tree.maps();
    maps.iter().filter(|path| is_closed(path)).map(|path| tree.name_of(path)).collect()
}

fn same_but_for(one: &Tree, other: &Tree, path: &[usize]) -> bool {
    let (place, map) = path.split_last().unwrap();
    let name = &other.fields(map)[*place].0;
    let reaches = one.maps().contains(&map.to_vec())
        && one.fields(map).len() == other.fields(map).len()
        && one.fields(map)[*place].0 == *name;
    reaches && one.replaced(path, Tree::Nil) == other.replaced(path, Tree::Nil)
}

fn files_of(folder: &FilePath) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn write_new(path: &FilePath, bytes: &[u8]) {
    use std::io::Write;
    let file = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
    file.and_then(|mut file| file.write_all(bytes)).unwrap();
}
