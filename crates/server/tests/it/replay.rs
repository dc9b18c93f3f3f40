//! Asks a server what a file of steps says, and compares the answers field by field.
//!
//! A file is one case: its steps follow each other in a namespace of their own, one JSON object to a line:
//!
//! - `ask`: method and path; `type`: the content type, if it is not JSON; `headers`; `body`: a tree, or text as it is;
//! - `code`; `answerType`, if it is not JSON; `warning`, the values of all such headers;
//! - `answer`: the body, or `failure`: what a `Status` says beyond its code.
//!
//! `{ns}` is the namespace. In an answer `*` stands for anything, alone or within a text; `{age}` for an age and
//! `{time}` for a time in a cell of a table.
//! Deliberately not here: which cases there are, and which differences are known (`recorded.rs`, `edges.rs`).

use meta::Value;
use serde_json::json;

use crate::{
    custom,
    harness::{Answered, TestServer},
};

/// Tokens of the recorded clients: an administrator, and somebody without rights.
pub const TOKENS: &str = "labtoken,lab,lab-uid,system:masters\nusertoken,user,user-uid\n";

/// A place where an answer is not what the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub step: u64,
    /// `code`, `type`, `warning`, or a path into the body.
    pub path: String,
    /// What was expected and what came, to be read.
    pub story: String,
}

/// Plays one case and says where the answers differ.
pub async fn play(server: &TestServer, namespace: &str, steps: &str) -> Vec<Difference> {
    let body = json!({"metadata": {"name": namespace}}).to_string();
    let headers = [("authorization", "Bearer labtoken"), ("content-type", "application/json")];
    server.send_text("POST", "/api/v1/namespaces", &headers, body).await.expect(201);
    let mut differences = Vec::new();
    for line in steps.lines() {
        let step = Step::read(line, namespace);
        let answered = step.ask(server).await;
        step.compare(&answered, &mut differences);
        if answered.code == 201 && step.text("ask").ends_with("/customresourcedefinitions") {
            let name = step.line["body"]["metadata"]["name"].as_str().unwrap_or_default();
            custom::established(server, "Bearer labtoken", name).await;
            // Who waits for it changes it in another second, and comes later in the order of its owners.
            server.pass_a_second();
        }
    }
    differences
}

struct Step {
    line: Value,
    number: u64,
}

impl Step {
    fn read(line: &str, namespace: &str) -> Self {
        let line = line.replace("{ns}", namespace);
        let line: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let number = line["step"].as_u64().expect("a step must have a number");
        Self { line, number }
    }

    fn text(&self, name: &str) -> &str {
        self.line[name].as_str().unwrap_or_default()
    }

    async fn ask(&self, server: &TestServer) -> Answered {
        let (method, path) = self.text("ask").split_once(' ').expect("a step must name method and path");
        let mut headers = vec![
            ("content-type", "application/json"),
            ("authorization", "Bearer labtoken"),
            ("user-agent", "differential/1"),
        ];
        if !self.text("type").is_empty() {
            headers[0].1 = self.text("type");
        }
        for (name, value) in self.line["headers"].as_object().into_iter().flatten() {
            headers.retain(|it| it.0 != name);
            let value = value.as_str().expect("a header must be a text");
            if !value.is_empty() {
                headers.push((name, value));
            }
        }
        let body = match &self.line["body"] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            tree => tree.to_string(),
        };
        server.send_text(method, path, &headers, body).await
    }

    fn compare(&self, answered: &Answered, differences: &mut Vec<Difference>) {
        let mut found = Vec::new();
        let code = self.line["code"].as_u64().expect("a step must have a code");
        if code != u64::from(answered.code) {
            found.push(("code".to_owned(), format!("want {code}, got {}: {}", answered.code, answered.text)));
        } else {
            self.compare_headers(answered, &mut found);
            let want = self.wanted_body(code);
            let got = serde_json::from_str(&answered.text).unwrap_or_else(|_| Value::from(&*answered.text));
            compare_trees(&want, &got, "", &mut found);
        }
        let step = self.number;
        differences.extend(found.into_iter().map(|(path, story)| Difference { step, path, story }));
    }

    fn compare_headers(&self, answered: &Answered, found: &mut Vec<(String, String)>) {
        // What this server says about itself upstream cannot have said.
        let is_ours = |it: &&str| it.starts_with("299 - \"this server does not ");
        let got = |name: &str| {
            let values = answered.headers.get_all(name).iter().map(|it| it.to_str().unwrap());
            values.filter(|it| !is_ours(it)).collect::<Vec<_>>().join(", ")
        };
        let answer_type = match self.text("answerType") {
            "" => "application/json",
            other => other,
        };
        for (name, header, want) in
            [("type", "content-type", answer_type), ("warning", "warning", self.text("warning"))]
        {
            let got = got(header);
            if !fits(want, &got) {
                found.push((name.to_owned(), format!("want {want:?}, got {got:?}")));
            }
        }
    }

    fn wanted_body(&self, code: u64) -> Value {
        let Some(failure) = self.line.get("failure") else {
            return self.line["answer"].clone();
        };
        let mut status =
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code});
        for (name, value) in failure.as_object().expect("a failure must be an object") {
            status[name.as_str()] = value.clone();
        }
        status
    }
}

fn compare_trees(want: &Value, got: &Value, path: &str, found: &mut Vec<(String, String)>) {
    match (want, got) {
        (Value::String(want), _) if want == "*" => {}
        (Value::String(want), Value::String(got)) if fits(want, got) => {}
        (Value::Object(want), Value::Object(got)) => {
            for (name, want) in want {
                match got.get(name) {
                    Some(got) => compare_trees(want, got, &format!("{path}.{name}"), found),
                    None => found.push((format!("{path}.{name}"), format!("missing, want {want}"))),
                }
            }
            for (name, got) in got.iter().filter(|it| !want.contains_key(it.0)) {
                found.push((format!("{path}.{name}"), format!("there is {got}")));
            }
        }
        (Value::Array(want), Value::Array(got)) if want.len() == got.len() => {
            for (n, (want, got)) in want.iter().zip(got).enumerate() {
                compare_trees(want, got, &format!("{path}[{n}]"), found);
            }
        }
        _ if want == got => {}
        _ => found.push((path.to_owned(), format!("want {want}, got {got}"))),
    }
}

/// Whether a text is the one wanted, in which some places may be left open.
fn fits(want: &str, got: &str) -> bool {
    match want {
        "{age}" => got.strip_suffix('s').is_some_and(|it| it.parse::<u32>().is_ok()),
        "{time}" => got.len() == "2026-01-01T00:00:00Z".len() && got.ends_with('Z'),
        _ => {
            let mut parts = want.split('*');
            let first = parts.next().unwrap_or_default();
            let Some(mut rest) = got.strip_prefix(first) else { return false };
            let mut is_open = false;
            for part in parts {
                is_open = true;
                let Some(at) = rest.rfind(part).filter(|_| part.is_empty()).or_else(|| rest.find(part))
                else {
                    return false;
                };
                rest = &rest[at + part.len()..];
            }
            rest.is_empty() || (is_open && want.ends_with('*'))
        }
    }
}

#[test]
fn open_places_fit_anything_and_the_rest_fits_itself() {
    assert!(fits("a", "a") && fits("a*c", "abc") && fits("a*", "a") && fits("(*)", "(1)"));
    assert!(fits("{age}", "12s") && fits("{time}", "2026-01-01T00:00:00Z"));
    assert!(!fits("a", "ab") && !fits("a*c", "ab") && !fits("a*c", "abcd") && !fits("{age}", "now"));
}
