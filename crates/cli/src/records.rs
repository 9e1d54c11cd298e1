//! Lines to keys and values: tab-separated columns, or JSON objects.

use serde_json::Value;

/// How a line becomes a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// Tab-separated columns, numbered from 1.
    Tsv {
        /// The column of the key.
        key: usize,
        /// The columns of the value, joined by tabs; `None`: all but the key's.
        values: Option<Vec<usize>>,
    },
    /// A JSON object a line.
    Json {
        /// The field of the key: a string or a number.
        key: String,
        /// The field of the value: a string as it is, anything else as JSON; `None`: the line.
        value: Option<String>,
    },
}

impl Layout {
    /// Puts what `line` says into `key` and `value`; says why if it is malformed. `false`: the
    /// line is blank and to be passed over.
    pub fn read(
        &self,
        line: &[u8],
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<bool, String> {
        key.clear();
        value.clear();
        match self {
            Self::Tsv { key: column, values } => {
                tsv(line, *column, values.as_deref(), key, value)?;
            }
            Self::Json { .. } if line.iter().all(u8::is_ascii_whitespace) => return Ok(false),
            Self::Json { key: field, value: value_field } => {
                json(line, field, value_field.as_deref(), key, value)?;
            }
        }
        if key.is_empty() {
            return Err("the key is empty".into());
        }
        Ok(true)
    }
}

fn tsv(
    line: &[u8],
    key_column: usize,
    value_columns: Option<&[usize]>,
    key: &mut Vec<u8>,
    value: &mut Vec<u8>,
) -> Result<(), String> {
    let columns: Vec<&[u8]> = line.split(|byte| *byte == b'\t').collect();
    let column = |number: usize, what: &str| {
        let column = number.checked_sub(1).and_then(|at| columns.get(at));
        column.ok_or_else(|| {
            let (count, s) = (columns.len(), if columns.len() == 1 { "" } else { "s" });
            format!("the line has {count} column{s}, and column {number} is to be the {what}")
        })
    };
    key.extend_from_slice(column(key_column, "key")?);
    let mut push = |part: &[u8], first: bool| {
        if !first {
            value.push(b'\t');
        }
        value.extend_from_slice(part);
    };
    match value_columns {
        Some(numbers) => {
            for (at, number) in numbers.iter().enumerate() {
                push(column(*number, "value")?, at == 0);
            }
        }
        None => {
            let others = columns.iter().enumerate().filter(|(at, _)| at + 1 != key_column);
            others.enumerate().for_each(|(at, (_, part))| push(part, at == 0));
        }
    }
    Ok(())
}

fn json(
    line: &[u8],
    key_field: &str,
    value_field: Option<&str>,
    key: &mut Vec<u8>,
    value: &mut Vec<u8>,
) -> Result<(), String> {
    let object = match serde_json::from_slice(line) {
        Ok(Value::Object(object)) => object,
        Ok(_) => return Err("the line is JSON, but no object".into()),
        // The position in the line; which line it is, the caller says.
        Err(error) => {
            return Err(
                format!("the line is not JSON: {error}").replace("at line 1 column", "at column")
            );
        }
    };
    let field = |name: &str| object.get(name).ok_or_else(|| format!("there is no field `{name}`"));
    match field(key_field)? {
        Value::String(text) => key.extend_from_slice(text.as_bytes()),
        Value::Number(number) => key.extend_from_slice(number.to_string().as_bytes()),
        _ => return Err(format!("the field `{key_field}` is neither a string nor a number")),
    }
    match value_field.map(field).transpose()? {
        Some(Value::String(text)) => value.extend_from_slice(text.as_bytes()),
        Some(other) => value.extend_from_slice(other.to_string().as_bytes()),
        None => value.extend_from_slice(line),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(layout: &Layout, line: &str) -> Result<Option<(String, String)>, String> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ok(layout.read(line.as_bytes(), &mut key, &mut value)?.then(|| (text(key), text(value))))
    }

    fn pair(key: &str, value: &str) -> Result<Option<(String, String)>, String> {
        Ok(Some((key.into(), value.into())))
    }

    #[test]
    fn columns_are_counted_from_one() {
        let tsv =
            |key, values: Option<&[usize]>| Layout::Tsv { key, values: values.map(Vec::from) };
        assert_eq!(read(&tsv(1, None), "a\tb\tc"), pair("a", "b\tc"));
        assert_eq!(read(&tsv(2, None), "a\tb\tc"), pair("b", "a\tc"));
        assert_eq!(read(&tsv(1, Some(&[3, 2])), "a\tb\tc"), pair("a", "c\tb"));
        assert_eq!(read(&tsv(1, None), "a"), pair("a", ""));
        let error = read(&tsv(3, None), "a\tb").unwrap_err();
        assert!(error.contains("2 columns") && error.contains("column 3"), "{error}");
        assert!(read(&tsv(1, Some(&[4])), "a\tb").unwrap_err().contains("value"));
        assert!(read(&tsv(1, None), "\tb").unwrap_err().contains("empty"));
        assert!(read(&tsv(1, None), "").is_err());
    }

    #[test]
    fn json_fields_are_text_numbers_or_the_line() {
        let json =
            |value: Option<&str>| Layout::Json { key: "id".into(), value: value.map(Into::into) };
        let line = r#"{"id": "a", "v": {"x": 1}, "n": 7}"#;
        assert_eq!(read(&json(None), line), pair("a", line));
        assert_eq!(read(&json(Some("v")), line), pair("a", r#"{"x":1}"#));
        assert_eq!(read(&json(Some("id")), line), pair("a", "a"));
        assert_eq!(read(&json(Some("n")), r#"{"id": 12, "n": null}"#), pair("12", "null"));
        assert_eq!(read(&json(None), "  "), Ok(None));
        for (line, want) in [
            ("{", "not JSON"),
            ("[1]", "no object"),
            ("{}", "no field `id`"),
            (r#"{"id": true}"#, "neither"),
            (r#"{"id": ""}"#, "empty"),
        ] {
            assert!(read(&json(None), line).unwrap_err().contains(want), "{line}");
        }
    }
}
