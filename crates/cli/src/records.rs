//! Records of an input: columns of tab- or comma-separated values, or fields of JSON objects.

use crate::csv;
use crate::format::{self, Format};
use crate::input::{Lines, without_end};
use crate::json_form;
use anyhow::{Result, anyhow, bail};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

/// What an input holds and which part of it is wanted, as the user says.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// The format; `None`: see [`mod@format`].
    pub format: Option<Format>,
    /// The first record names the columns.
    pub has_header: bool,
    /// The column of the key, from 1.
    pub key_column: Option<usize>,
    /// The columns of the value, from 1; none: all but the key's.
    pub value_columns: Vec<usize>,
    /// The field of the key, or the name of its column.
    pub key_field: Option<String>,
    /// The field of the value, or the name of its column.
    pub value_field: Option<String>,
}

/// A record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// Its key; empty only in what `scan --json` printed.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// When it expires, in Unix milliseconds.
    pub expires_at_ms: Option<u64>,
}

/// The records of an input, one after the other.
pub struct Records {
    lines: Lines,
    layout: Layout,
    /// The line that is read, with its end; of CSV, all lines of the record.
    line: Vec<u8>,
    csv: csv::Record,
    /// The first record, which says what the input is, so that it is read before it is wanted.
    first: Option<Record>,
}

enum Layout {
    /// Nothing is in it.
    Empty,
    Columns(Columns),
    /// The fields of key and value; without the latter, the whole line is the value.
    Json {
        key: String,
        value: Option<String>,
    },
    /// What `terrace scan --json` prints.
    Scan,
}

struct Columns {
    is_csv: bool,
    /// From 1.
    key: usize,
    values: Option<Vec<usize>>,
    /// How many there must be, and which line says so: of CSV.
    count: Option<(usize, u64)>,
}

impl Records {
    /// Reads the first record of `lines`, the content of `file`.
    ///
    /// # Errors
    /// It is not known what the input is, or the first record is malformed.
    pub fn open(file: &Path, mut lines: Lines, wanted: &Wanted) -> Result<Self> {
        if wanted.format.is_none() {
            let ahead = lines.ahead()?;
            format::check_text(ahead)
                .map_err(|why| anyhow!("cannot load {}: {why}", lines.name()))?;
        }
        let mut line = Vec::new();
        let mut is_there = lines.append(&mut line)?;
        // No blank line names columns.
        while is_there && wanted.has_header && line.trim_ascii().is_empty() {
            line.clear();
            is_there = lines.append(&mut line)?;
        }
        let csv = csv::Record::default();
        let mut records = Self { lines, layout: Layout::Empty, line, csv, first: None };
        if !is_there {
            return Ok(records);
        }
        let text = &records.line[..without_end(&records.line)];
        let format =
            wanted.format.or_else(|| format::of_name(file)).or_else(|| format::of_line(text));
        let Some(format) = format else {
            bail!(
                "the format of {} is not clear from its name nor its first line; say --format tsv, \
                 csv or json",
                records.lines.name()
            );
        };
        records.layout = wanted.layout(format)?;
        records.read_header(wanted)?;
        let mut record = Record::default();
        if records.read_line(&mut record)? {
            records.first = Some(record);
        }
        Ok(records)
    }

    /// Puts the next record into `record`; `false` at the end.
    pub fn next(&mut self, record: &mut Record) -> Result<bool> {
        if let Some(first) = self.first.take() {
            *record = first;
            return Ok(true);
        }
        if matches!(self.layout, Layout::Empty) {
            return Ok(false);
        }
        self.line.clear();
        Ok(self.lines.append(&mut self.line)? && self.read_line(record)?)
    }

    /// The first record, if there is one and [`Self::next`] has not given it.
    pub fn first(&self) -> Option<&Record> {
        self.first.as_ref()
    }

    /// The input.
    pub fn lines(&self) -> &Lines {
        &self.lines
    }

    /// Takes the names of the columns out of the line that has been read, if there are any, and reads
    /// the next line. A first line of JSON may say that the input is what `scan` printed.
    fn read_header(&mut self, wanted: &Wanted) -> Result<()> {
        let (place, number) = (self.lines.place(), self.lines.number());
        match &mut self.layout {
            Layout::Columns(columns) if wanted.has_header => {
                let names = columns.split(&mut self.lines, &mut self.line, &mut self.csv)?;
                columns.select(&names, number, wanted).map_err(|why| anyhow!("{place}: {why}"))?;
                self.line.clear();
                if !self.lines.append(&mut self.line)? {
                    self.layout = Layout::Empty;
                }
            }
            // With --format json each line is a record of its own, whatever it looks like.
            Layout::Json { .. } | Layout::Scan
                if wanted.format != Some(Format::Json)
                    && wanted.key_field.is_none()
                    && wanted.value_field.is_none() =>
            {
                let Ok(Value::Object(object)) = serde_json::from_slice(&self.line) else {
                    return Ok(());
                };
                if json_form::is_typed_entry(&object) {
                    bail!(
                        "{place}: this is what `terrace scan --json` prints of a server's store; \
                         `terrace dump` and `terrace restore` copy one"
                    );
                }
                if json_form::is_entry(&object) {
                    self.layout = Layout::Scan;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Makes a record of the line that has been read, or of the first one behind it that is not blank.
    fn read_line(&mut self, record: &mut Record) -> Result<bool> {
        loop {
            let number = self.lines.number();
            record.key.clear();
            record.value.clear();
            record.expires_at_ms = None;
            let may_be_blank = !matches!(&self.layout, Layout::Columns(columns) if !columns.is_csv);
            if may_be_blank && self.line.trim_ascii().is_empty() {
                self.line.clear();
                match self.lines.append(&mut self.line)? {
                    true => continue,
                    false => return Ok(false),
                }
            }
            let read = match &mut self.layout {
                Layout::Empty => return Ok(false),
                Layout::Columns(columns) => {
                    let fields = columns.split(&mut self.lines, &mut self.line, &mut self.csv)?;
                    columns.read(&fields, number, record)
                }
                Layout::Json { key, value } => json(&self.line, key, value.as_deref(), record),
                Layout::Scan => object(&self.line).and_then(|object| {
                    let Record { key, value, expires_at_ms } = record;
                    *expires_at_ms = json_form::take(&object, key, value)?;
                    Ok(())
                }),
            };
            // In a file of somebody's that is a slip; of a store it is a key like any other.
            let is_slip = record.key.is_empty() && !matches!(self.layout, Layout::Scan);
            let read = read.and_then(|()| match is_slip {
                true => Err("the key is empty".into()),
                false => Ok(()),
            });
            return match read {
                Ok(()) => Ok(true),
                Err(why) => Err(anyhow!("{}: {why}", self.lines.place_of(number))),
            };
        }
    }
}

impl Wanted {
    fn layout(&self, format: Format) -> Result<Layout> {
        let has_columns = self.key_column.is_some() || !self.value_columns.is_empty();
        let has_fields = self.key_field.is_some() || self.value_field.is_some();
        let is_json = matches!(format, Format::Json | Format::Scan);
        if is_json && (has_columns || self.has_header) {
            bail!("--header, --key-column and --value-columns are for columns, and this is JSON");
        }
        if format == Format::Scan && has_fields {
            bail!(
                "what `terrace scan --json` prints has fixed fields; leave --key-field and --value-field out"
            );
        }
        if !is_json && has_fields && !self.has_header {
            bail!("columns have names only with --header; use --key-column and --value-columns");
        }
        Ok(match format {
            Format::Scan => Layout::Scan,
            Format::Json => Layout::Json {
                key: self.key_field.clone().unwrap_or_else(|| "key".into()),
                value: self.value_field.clone(),
            },
            Format::Tsv | Format::Csv => Layout::Columns(Columns {
                is_csv: format == Format::Csv,
                key: self.key_column.unwrap_or(1),
                values: (!self.value_columns.is_empty()).then(|| self.value_columns.clone()),
                count: None,
            }),
        })
    }
}

impl Columns {
    /// The fields of the record that begins with `line`, which may go on over further lines.
    fn split<'l>(
        &self,
        lines: &mut Lines,
        line: &'l mut Vec<u8>,
        csv: &'l mut csv::Record,
    ) -> Result<Vec<&'l [u8]>> {
        if !self.is_csv {
            return Ok(line[..without_end(line)].split(|byte| *byte == b'\t').collect());
        }
        let (first, mut from) = (lines.number(), 0);
        csv.clear();
        loop {
            let (text, end) = line[from..].split_at(without_end(&line[from..]));
            let ended = csv.take(text, end);
            if ended.map_err(|why| anyhow!("{}: {why}", lines.place_of(first)))? {
                return Ok(csv.fields().collect());
            }
            from = line.len();
            if !lines.append(line)? {
                bail!("{}: a quote is never closed", lines.place_of(first));
            }
        }
    }

    /// Finds the columns that are wanted by name among those that the header, line `number`, names.
    fn select(&mut self, names: &[&[u8]], number: u64, wanted: &Wanted) -> Result<(), String> {
        let find = |name: &String| match names.iter().position(|found| *found == name.as_bytes()) {
            Some(at) => Ok(at + 1),
            None => Err(format!("the header has no column `{name}`")),
        };
        if let Some(name) = &wanted.key_field {
            self.key = find(name)?;
        }
        if let Some(name) = &wanted.value_field {
            self.values = Some(vec![find(name)?]);
        }
        self.count = self.is_csv.then_some((names.len(), number));
        Ok(())
    }

    /// Puts the fields of line `number` into `record`.
    fn read(&mut self, fields: &[&[u8]], number: u64, record: &mut Record) -> Result<(), String> {
        let s = if fields.len() == 1 { "" } else { "s" };
        if self.is_csv {
            let (count, line) = *self.count.get_or_insert((fields.len(), number));
            if count != fields.len() {
                let found = fields.len();
                return Err(format!("the record has {found} column{s}; line {line} has {count}"));
            }
        }
        let column = |number: usize, what: &str| {
            let column = number.checked_sub(1).and_then(|at| fields.get(at));
            column.ok_or_else(|| {
                let count = fields.len();
                format!("the line has {count} column{s}, and column {number} is to be the {what}")
            })
        };
        record.key.extend_from_slice(column(self.key, "key")?);
        let wanted: Vec<&[u8]> = match &self.values {
            Some(numbers) => {
                let wanted = numbers.iter().map(|number| column(*number, "value").copied());
                wanted.collect::<Result<_, _>>()?
            }
            None => {
                let others = fields.iter().enumerate().filter(|(at, _)| at + 1 != self.key);
                others.map(|(_, field)| *field).collect()
            }
        };
        match wanted.as_slice() {
            [only] => record.value.extend_from_slice(only),
            wanted if self.is_csv => {
                for (at, field) in wanted.iter().enumerate() {
                    csv::push_field(&mut record.value, field, at == 0);
                }
            }
            wanted => record.value = wanted.join(&b'\t'),
        }
        Ok(())
    }
}

/// The object that a line is.
fn object(line: &[u8]) -> Result<Map<String, Value>, String> {
    match serde_json::from_slice(line) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(NO_OBJECT.into()),
        Err(error) => Err(not_json("the line", &error)),
    }
}

/// The fields of the object that a line is, each as it stands there.
fn raw_fields(line: &[u8]) -> Result<BTreeMap<String, &RawValue>, String> {
    serde_json::from_slice(line).map_err(|error| match serde_json::from_slice::<&RawValue>(line) {
        Ok(_) if error.is_data() => NO_OBJECT.into(),
        Ok(_) => not_json("the line", &error),
        Err(error) => not_json("the line", &error),
    })
}

const NO_OBJECT: &str = "the line is JSON, but no object";

/// Says where in `what` there is no JSON. Which line it is, the caller says.
fn not_json(what: &str, error: &serde_json::Error) -> String {
    format!("{what} is not JSON: {error}").replace("at line 1 column", "at column")
}

fn json(
    line: &[u8],
    key_field: &str,
    value_field: Option<&str>,
    record: &mut Record,
) -> Result<(), String> {
    let line = &line[..without_end(line)];
    let fields = raw_fields(line)?;
    let field = |name: &str| {
        let raw = fields.get(name).ok_or_else(|| format!("there is no field `{name}`"))?;
        raw_bytes(name, raw.get())
    };
    let (key, kind) = field(key_field)?;
    if kind == RawKind::Other {
        return Err(format!("the field `{key_field}` is neither a string nor a number"));
    }
    record.key.extend_from_slice(key.as_bytes());
    match value_field.map(field).transpose()? {
        Some((value, _)) => record.value.extend_from_slice(value.as_bytes()),
        None => record.value.extend_from_slice(line),
    }
    Ok(())
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RawKind {
    String,
    Number,
    Other,
}

/// What the field `name` stands for: a string itself, of all else its JSON as it is written. A number goes through no
/// `f64`, which would change it.
fn raw_bytes<'a>(name: &str, raw: &'a str) -> Result<(Cow<'a, str>, RawKind), String> {
    match raw.as_bytes().first() {
        Some(b'"') => {
            let text = serde_json::from_str::<String>(raw);
            let text = text.map_err(|error| not_json(&format!("the field `{name}`"), &error))?;
            Ok((text.into(), RawKind::String))
        }
        Some(b'-' | b'0'..=b'9') => Ok((raw.into(), RawKind::Number)),
        _ => Ok((raw.into(), RawKind::Other)),
    }
}

#[cfg(test)]
mod tests;
