//! The formats of `-o`.

use std::str::FromStr;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputFormat {
    Table,
    Wide,
    Json,
    JsonLines,
    Name,
    /// A template over one item.
    Template(String),
}

impl OutputFormat {
    /// Whether a program reads it, so that errors are JSON too.
    pub fn is_json(&self) -> bool {
        matches!(self, Self::Json | Self::JsonLines)
    }
}

impl FromStr for OutputFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "table" => Ok(Self::Table),
            "wide" => Ok(Self::Wide),
            "json" => Ok(Self::Json),
            "jsonl" => Ok(Self::JsonLines),
            "name" => Ok(Self::Name),
            _ => match text.strip_prefix("template=") {
                Some(template) if !template.is_empty() => Ok(Self::Template(template.to_owned())),
                _ => Err("it is one of table, wide, json, jsonl, name, template='{{ name }}'".to_owned()),
            },
        }
    }
}
