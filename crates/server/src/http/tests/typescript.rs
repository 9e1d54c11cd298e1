//! Just enough TypeScript to hold answers against `dashboard/src/api.ts`: interfaces, unions, arrays,
//! tuples, inline objects and literals.

use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

/// The types of a file.
pub struct Types(HashMap<String, Type>);

#[derive(Debug, Clone)]
enum Type {
    Named(String),
    Literal(String),
    Union(Vec<Type>),
    Array(Box<Type>),
    Tuple(Vec<Type>),
    /// What it extends, and its fields; `true`: may be left out.
    Object(Option<String>, BTreeMap<String, (bool, Type)>),
}

impl Types {
    /// The types that `source` exports.
    pub fn parse(source: &str) -> Self {
        let mut parser = Parser { tokens: tokens(source), at: 0 };
        let mut types = HashMap::new();
        while parser.at < parser.tokens.len() {
            match parser.next().as_str() {
                "interface" => {
                    let name = parser.next();
                    let base = parser.take("extends").then(|| parser.next());
                    let Type::Object(_, fields) = parser.primary() else { panic!("{name}") };
                    types.insert(name, Type::Object(base, fields));
                }
                "type" => {
                    let name = parser.next();
                    parser.expect("=");
                    types.insert(name, parser.union());
                }
                _ => {}
            }
        }
        Self(types)
    }

    /// What is wrong with `value` as a `name`; `name` may be any type expression.
    pub fn complaints(&self, name: &str, value: &Value) -> Vec<String> {
        let kind = Parser { tokens: tokens(name), at: 0 }.union();
        let mut complaints = Vec::new();
        self.check(&kind, value, name, &mut complaints);
        complaints
    }

    fn check(&self, kind: &Type, value: &Value, path: &str, out: &mut Vec<String>) {
        let is_right = match kind {
            Type::Named(name) => match name.as_str() {
                "number" => value.is_number(),
                "string" => value.is_string(),
                "boolean" => value.is_boolean(),
                "null" => value.is_null(),
                _ => return self.check(&self.0[name], value, path, out),
            },
            Type::Literal(text) => value.as_str() == Some(text),
            Type::Union(kinds) => {
                let tried = kinds.iter().map(|kind| {
                    let mut out = Vec::new();
                    self.check(kind, value, path, &mut out);
                    out
                });
                // What fits best says what is wrong.
                return out.extend(tried.min_by_key(|out| (out.len(), -deepest(out))).unwrap());
            }
            Type::Array(kind) => match value.as_array() {
                Some(values) => {
                    return self.check_all(values.iter().map(|v| (&**kind, v)), path, out);
                }
                None => false,
            },
            Type::Tuple(kinds) => match value.as_array() {
                Some(values) if values.len() == kinds.len() => {
                    return self.check_all(kinds.iter().zip(values), path, out);
                }
                _ => false,
            },
            Type::Object(..) => match value.as_object() {
                Some(_) => return self.check_object(kind, value, path, out),
                None => false,
            },
        };
        if !is_right {
            out.push(format!("{path} is {value}, not {kind:?}"));
        }
    }

    fn check_all<'a>(
        &self,
        all: impl Iterator<Item = (&'a Type, &'a Value)>,
        path: &str,
        out: &mut Vec<String>,
    ) {
        for (at, (kind, value)) in all.enumerate() {
            self.check(kind, value, &format!("{path}[{at}]"), out);
        }
    }

    fn check_object(&self, kind: &Type, value: &Value, path: &str, out: &mut Vec<String>) {
        let fields = self.fields(kind);
        for (name, (is_optional, kind)) in &fields {
            match value.get(name) {
                Some(value) => self.check(kind, value, &format!("{path}.{name}"), out),
                None if *is_optional => {}
                None => out.push(format!("{path}.{name} is missing")),
            }
        }
        let unknown = value.as_object().unwrap().keys().filter(|name| !fields.contains_key(*name));
        out.extend(unknown.map(|name| format!("{path}.{name} is in no interface")));
    }

    fn fields(&self, kind: &Type) -> BTreeMap<String, (bool, Type)> {
        let Type::Object(base, own) = kind else { panic!("{kind:?} has no fields") };
        let mut fields =
            base.as_ref().map_or_else(BTreeMap::new, |base| self.fields(&self.0[base]));
        fields.extend(own.clone());
        fields
    }
}

fn deepest(complaints: &[String]) -> i64 {
    complaints.iter().map(|text| text.matches(['.', '[']).count() as i64).max().unwrap_or(0)
}

struct Parser {
    tokens: Vec<String>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }

    fn next(&mut self) -> String {
        self.at += 1;
        self.tokens[self.at - 1].clone()
    }

    fn take(&mut self, token: &str) -> bool {
        let is_next = self.peek() == token;
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, token: &str) {
        assert!(self.take(token), "{} instead of {token}", self.peek());
    }

    fn union(&mut self) -> Type {
        self.take("|");
        let mut kinds = vec![self.postfix()];
        while self.take("|") {
            kinds.push(self.postfix());
        }
        if kinds.len() == 1 { kinds.remove(0) } else { Type::Union(kinds) }
    }

    fn postfix(&mut self) -> Type {
        let mut kind = self.primary();
        while self.peek() == "[" {
            self.at += 1;
            self.expect("]");
            kind = Type::Array(Box::new(kind));
        }
        kind
    }

    fn primary(&mut self) -> Type {
        match self.next().as_str() {
            "(" => {
                let kind = self.union();
                self.expect(")");
                kind
            }
            "[" => {
                let mut kinds = Vec::new();
                while !self.take("]") {
                    kinds.push(self.union());
                    self.take(",");
                }
                Type::Tuple(kinds)
            }
            "{" => {
                let mut fields = BTreeMap::new();
                while !self.take("}") {
                    let name = self.next();
                    let is_optional = self.take("?");
                    self.expect(":");
                    fields.insert(name, (is_optional, self.union()));
                    self.take(";");
                }
                Type::Object(None, fields)
            }
            word if word.starts_with('"') => Type::Literal(word.trim_matches('"').to_string()),
            word => Type::Named(word.to_string()),
        }
    }
}

/// Words, strings and signs, without comments.
fn tokens(source: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").unwrap() + 2
        } else if first == '"' {
            rest[1..].find('"').unwrap() + 2
        } else if first.is_alphanumeric() || first == '_' {
            rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let is_comment = rest.starts_with("//") || rest.starts_with("/*");
        if !is_comment && !first.is_whitespace() {
            tokens.push(rest[..length].to_string());
        }
        rest = &rest[length..];
    }
    tokens
}

#[test]
fn what_does_not_fit_is_told() {
    let types = Types::parse(
        "/* a */ export interface A { // b\n x: number; y?: string | null; z: (B | null)[] }\n\
         export type B = \"u\" | \"v\"; export interface C extends A { w: [number, number]; }",
    );
    let check =
        |name: &str, json: &str| types.complaints(name, &serde_json::from_str(json).unwrap());
    assert!(check("A", r#"{"x": 1, "z": ["u", null]}"#).is_empty());
    assert!(check("C[]", r#"[{"x": 1, "y": null, "z": [], "w": [1, 2]}]"#).is_empty());
    assert!(check("A | null", "null").is_empty());
    for (name, wrong) in [
        ("A", r#"{"x": null, "z": []}"#),
        ("A", r#"{"x": 1}"#),
        ("A", r#"{"x": 1, "z": ["w"]}"#),
        ("A", r#"{"x": 1, "z": [], "more": 1}"#),
        ("C", r#"{"x": 1, "z": [], "w": [1]}"#),
        ("C", r#"{"z": [], "w": [1, 2]}"#),
        ("A", "[]"),
        ("A[]", "{}"),
    ] {
        assert_eq!(check(name, wrong).len(), 1, "{name} {wrong}: {:?}", check(name, wrong));
    }
}
