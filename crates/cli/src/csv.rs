//! Comma-separated values as RFC 4180 has them: fields in quotes may hold commas, line ends and
//! doubled quotes.

/// A record that is read line by line, because its fields may hold line ends.
#[derive(Debug, Default)]
pub struct Record {
    state: State,
    text: Vec<u8>,
    /// Where each field ends in `text`.
    ends: Vec<usize>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// At the beginning of a field.
    #[default]
    Start,
    /// In a field without quotes.
    Plain,
    /// Between quotes.
    Quoted,
    /// Behind a quote that ends the field, unless another one follows.
    Closing,
}

impl Record {
    /// Begins a new record.
    pub fn clear(&mut self) {
        self.state = State::Start;
        self.text.clear();
        self.ends.clear();
    }

    /// Takes the next line of the record, which is `line` and then its `end`; says whether the record
    /// ends with it.
    pub fn take(&mut self, line: &[u8], end: &[u8]) -> Result<bool, String> {
        for byte in line {
            self.state = match (self.state, byte) {
                (State::Start, b'"') => State::Quoted,
                (State::Start | State::Plain | State::Closing, b',') => {
                    self.ends.push(self.text.len());
                    State::Start
                }
                (State::Plain, b'"') => {
                    let column = self.ends.len() + 1;
                    return Err(format!(
                        "there is a quote inside of column {column}, which does not begin with one"
                    ));
                }
                (State::Start | State::Plain, byte) => {
                    self.text.push(*byte);
                    State::Plain
                }
                (State::Quoted, b'"') => State::Closing,
                (State::Quoted, byte) => {
                    self.text.push(*byte);
                    State::Quoted
                }
                (State::Closing, b'"') => {
                    self.text.push(b'"');
                    State::Quoted
                }
                (State::Closing, _) => {
                    let column = self.ends.len() + 1;
                    return Err(format!("column {column} goes on behind its closing quote"));
                }
            };
        }
        if self.state == State::Quoted {
            self.text.extend_from_slice(end);
            return Ok(false);
        }
        self.ends.push(self.text.len());
        Ok(true)
    }

    /// The fields of a record that has ended.
    pub fn fields(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.text[start..*end])
    }
}

/// Appends a field to a record of which `out` holds the fields before it.
pub fn push_field(out: &mut Vec<u8>, field: &[u8], is_first: bool) {
    if !is_first {
        out.push(b',');
    }
    if !field.iter().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r')) {
        out.extend_from_slice(field);
        return;
    }
    out.push(b'"');
    for byte in field {
        if *byte == b'"' {
            out.push(b'"');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[&str]) -> Result<Vec<String>, String> {
        let mut record = Record::default();
        let mut ended = false;
        for line in lines {
            assert!(!ended, "it ended before {line}");
            ended = record.take(line.as_bytes(), b"\r\n")?;
        }
        assert!(ended);
        Ok(record.fields().map(|field| String::from_utf8(field.to_vec()).unwrap()).collect())
    }

    #[test]
    fn fields_may_be_quoted_and_hold_anything() {
        assert_eq!(fields(&["a,b,,c"]).unwrap(), ["a", "b", "", "c"]);
        assert_eq!(fields(&[""]).unwrap(), [""]);
        assert_eq!(
            fields(&["\"a,b\",\"say \"\"hi\"\"\",\"\""]).unwrap(),
            ["a,b", "say \"hi\"", ""]
        );
        assert_eq!(fields(&["x,\"two", "lines\",y"]).unwrap(), ["x", "two\r\nlines", "y"]);
        assert!(fields(&["a,b\"c"]).unwrap_err().contains("column 2"));
        assert!(fields(&["\"a\"b"]).unwrap_err().contains("column 1 goes on"));
    }

    #[test]
    fn what_is_pushed_is_taken_back() {
        let all = ["", "plain", "a,b", "\"", "line\nend", "\r", " x "];
        let mut text = Vec::new();
        for (at, field) in all.iter().enumerate() {
            push_field(&mut text, field.as_bytes(), at == 0);
        }
        let mut record = Record::default();
        let text = String::from_utf8(text).unwrap();
        let mut lines = text.split('\n').peekable();
        while let Some(line) = lines.next() {
            let ended = record.take(line.as_bytes(), b"\n").unwrap();
            assert_eq!(ended, lines.peek().is_none());
        }
        assert!(record.fields().eq(all.iter().map(|field| field.as_bytes())));
    }
}
