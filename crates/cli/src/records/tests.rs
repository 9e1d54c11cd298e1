//! Tests of records: columns by number and by name, fields, what is refused.

use super::*;
use indicatif::ProgressBar;

/// What is read of `text`, as text.
fn read(file: &str, text: &str, wanted: &Wanted) -> Result<Vec<(String, String)>, String> {
    let raw = Box::new(std::io::Cursor::new(text.as_bytes().to_vec()));
    let lines = Lines::over(raw, "in".into(), ProgressBar::hidden(), 1 << 20).unwrap();
    let all = || {
        let mut records = Records::open(Path::new(file), lines, wanted)?;
        let (mut record, mut all) = (Record::default(), Vec::new());
        while records.next(&mut record)? {
            let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
            all.push((text(&record.key), text(&record.value)));
        }
        Ok::<_, anyhow::Error>(all)
    };
    all().map_err(|error| format!("{error:#}"))
}

fn pairs(all: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
    Ok(all.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect())
}

fn columns(key: usize, values: &[usize]) -> Wanted {
    Wanted { key_column: Some(key), value_columns: values.to_vec(), ..Wanted::default() }
}

#[test]
fn columns_are_counted_from_one() {
    let tsv = |wanted: Wanted, text| read("in.tsv", text, &wanted);
    assert_eq!(tsv(columns(1, &[]), "a\tb\tc"), pairs(&[("a", "b\tc")]));
    assert_eq!(tsv(columns(2, &[]), "a\tb\tc"), pairs(&[("b", "a\tc")]));
    assert_eq!(tsv(columns(1, &[3, 2]), "a\tb\tc"), pairs(&[("a", "c\tb")]));
    assert_eq!(tsv(columns(1, &[]), "a"), pairs(&[("a", "")]));
    let error = tsv(columns(3, &[]), "a\tb").unwrap_err();
    assert!(error.contains("2 columns") && error.contains("column 3"), "{error}");
    assert!(tsv(columns(1, &[4]), "a\tb").unwrap_err().contains("value"));
    assert!(tsv(columns(1, &[]), "\tb").unwrap_err().contains("empty"));
    assert!(tsv(columns(1, &[]), "a\n\nb\n").unwrap_err().starts_with("in:2: the key is empty"));
}

#[test]
fn csv_has_one_number_of_columns() {
    let csv = |text| read("in.csv", text, &Wanted::default());
    assert_eq!(csv("k,v\r\n\r\nl,\"w,\n\"\"x\"\n"), pairs(&[("k", "v"), ("l", "w,\n\"x")]));
    // A value of several columns is CSV itself.
    assert_eq!(csv("k,v,\"a,b\"\n"), pairs(&[("k", "v,\"a,b\"")]));
    for (text, want) in [
        ("a,b\nc\n", "in:2: the record has 1 column; line 1 has 2"),
        ("a,b\nc,\"\n\"\nd,e,f\n", "in:4: the record has 3 columns"),
        ("a,b\nc,\"d\n", "in:2: a quote is never closed"),
        ("a,b\"c\n", "in:1: there is a quote inside of column 2"),
        ("a,b\n,c\n", "in:2: the key is empty"),
    ] {
        let error = csv(text).unwrap_err();
        assert!(error.starts_with(want), "{text}: {error}");
    }
}

#[test]
fn a_header_names_the_columns() {
    let header = Wanted { has_header: true, ..Wanted::default() };
    let named = |key: &str, value: &str| Wanted {
        key_field: Some(key.into()),
        value_field: Some(value.into()),
        ..header.clone()
    };
    let text = "id,name,size\n1,rice,3\n2,tea,4\n";
    assert_eq!(read("in.csv", text, &header), pairs(&[("1", "rice,3"), ("2", "tea,4")]));
    let want = pairs(&[("rice", "3"), ("tea", "4")]);
    assert_eq!(read("in.csv", text, &named("name", "size")), want);
    assert_eq!(read("in.tsv", &text.replace(',', "\t"), &named("name", "size")), want);
    assert_eq!(read("in.csv", "id,name\n", &header), pairs(&[]));
    // Blank lines in front of it name none.
    let behind = format!("\r\n \n{text}");
    assert_eq!(read("in.csv", &behind, &named("name", "size")), want);
    assert_eq!(read("in.tsv", &behind.replace(',', "\t"), &named("name", "size")), want);
    assert_eq!(read("in", &behind, &named("name", "size")), want);
    assert_eq!(read("in.csv", "\n\n", &header), pairs(&[]));
    let error = read("in.csv", "\na,b,c\n1,2\n", &header).unwrap_err();
    assert!(error.contains("in:3: the record has 2 columns; line 2 has 3"), "{error}");
    let error = read("in.csv", text, &named("name", "color")).unwrap_err();
    assert!(error.contains("in:1: the header has no column `color`"), "{error}");
    let error = read("in.csv", "a,b,c\n1,2\n", &header).unwrap_err();
    assert!(error.contains("in:2: the record has 2 columns; line 1 has 3"), "{error}");
}

#[test]
fn json_fields_are_text_numbers_or_the_line() {
    let json = |value: Option<&str>, text| {
        let wanted = Wanted {
            key_field: Some("id".into()),
            value_field: value.map(Into::into),
            ..Wanted::default()
        };
        read("in.jsonl", text, &wanted)
    };
    let line = r#"{"id": "a", "v": {"x": 1}, "n": 7}"#;
    assert_eq!(json(None, line), pairs(&[("a", line)]));
    assert_eq!(json(Some("v"), line), pairs(&[("a", r#"{"x": 1}"#)]));
    assert_eq!(json(Some("id"), line), pairs(&[("a", "a")]));
    assert_eq!(json(Some("n"), r#"{"id": 12, "n": null}"#), pairs(&[("12", "null")]));
    assert_eq!(json(None, "  \n\n"), pairs(&[]));
    for (line, want) in [
        ("{", "not JSON"),
        ("[1]", "no object"),
        ("{}", "no field `id`"),
        (r#"{"id": true}"#, "neither"),
        (r#"{"id": ""}"#, "empty"),
        (r#"{"id": "\ud800"}"#, "not JSON"),
    ] {
        assert!(json(None, line).unwrap_err().contains(want), "{line}");
    }
}

#[test]
fn json_numbers_are_taken_digit_by_digit() {
    let wanted =
        Wanted { key_field: Some("id".into()), value_field: Some("v".into()), ..Wanted::default() };
    let numbers = [
        "123456789012345678901",
        "123456789012345678902",
        "0.1000000000000000055",
        "1.0",
        "1",
        "-0",
        "1e400",
    ];
    for number in numbers {
        let line = format!("{{\"id\": {number}, \"v\": {number}}}");
        assert_eq!(read("in.jsonl", &line, &wanted), pairs(&[(number, number)]));
        let list = format!("[{number}, {{\"z\": {number}, \"a\": 0}}]");
        let line = format!("{{\"id\": {number}, \"v\": {list} }}");
        assert_eq!(read("in.jsonl", &line, &wanted), pairs(&[(number, &list)]));
    }
}

#[test]
fn the_first_line_tells_what_scan_printed() {
    let wanted = Wanted::default();
    let text = "{\"key\":\"a\",\"value\":\"1\"}\n{\"key_hex\":\"0x62\",\"value_hex\":\"0x32\"}\n";
    assert_eq!(read("-", text, &wanted), pairs(&[("a", "1"), ("b", "2")]));
    // All lines have the form of the first.
    let mixed = "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\",\"value\":\"2\",\"more\":3}\n";
    assert!(read("-", mixed, &wanted).unwrap_err().starts_with("in:2: `more` is no field"));
    let other = "{\"key\":\"a\",\"value\":\"1\",\"more\":3}\n";
    assert_eq!(read("-", other, &wanted), pairs(&[("a", other.trim_end())]));
    // With --format json a line is one record.
    let json = Wanted { format: Some(Format::Json), ..Wanted::default() };
    let line = "{\"key\":\"a\",\"value\":\"1\"}";
    assert_eq!(read("-", line, &json), pairs(&[("a", line)]));
    let typed = "{\"key\":\"a\",\"type\":\"string\",\"value\":\"1\"}";
    assert!(read("-", typed, &wanted).unwrap_err().contains("terrace dump"));
    assert_eq!(read("-", typed, &json), pairs(&[("a", typed)]));
    let scan = Wanted { format: Some(Format::Scan), ..Wanted::default() };
    assert!(read("-", typed, &scan).unwrap_err().contains("terrace dump"));
}

#[test]
fn options_of_another_format_are_refused() {
    let text = "{\"key\":\"a\"}\n";
    let header = Wanted { has_header: true, ..Wanted::default() };
    assert!(read("-", text, &header).unwrap_err().contains("this is JSON"));
    assert!(read("-", text, &columns(1, &[])).unwrap_err().contains("this is JSON"));
    let field = Wanted { key_field: Some("a".into()), ..Wanted::default() };
    assert!(read("-", "a\tb\n", &field).unwrap_err().contains("--header"));
    let both = Wanted { format: Some(Format::Scan), ..field };
    assert!(read("-", text, &both).unwrap_err().contains("fixed fields"));
    assert!(read("-", "words\n", &Wanted::default()).unwrap_err().contains("say --format"));
}
