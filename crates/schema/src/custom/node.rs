//! A compiled schema: a tree of small nodes, without prose.
//!
//! The tree is made once per definition and shared by all requests. What is said against an object is kept apart from
//! its structure, because most nodes have no such rules.

use std::sync::{Arc, OnceLock};

use super::{format::Format, pattern};
use crate::{Map, Value, model::ListKind};

/// What one place in an object looks like.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// The type.
    pub kind: Kind,
    /// `null` is a value here.
    pub is_nullable: bool,
    /// Fields that are not listed stay.
    pub keeps_unknown: bool,
    /// An object with `apiVersion`, `kind` and `metadata` of its own.
    pub is_embedded: bool,
    /// A number or a text.
    pub is_int_or_string: bool,
    /// Owned as a whole by one manager.
    pub is_atomic: bool,
    /// What tells the elements of a list apart.
    pub list: Option<Box<ListKind>>,
    /// The fields, sorted by name.
    pub properties: Box<[(Box<str>, Node)]>,
    /// All fields that are not listed.
    pub additional: Option<Additional>,
    /// All elements.
    pub items: Option<Box<Node>>,
    /// Filled in where nothing is said.
    pub default: Option<Box<Value>>,
    pub(super) rules: Option<Box<Rules>>,
}

/// What fields look like that are not listed.
#[derive(Clone, Debug)]
pub enum Additional {
    /// `additionalProperties: true`: nothing is said about them.
    Anything,
    /// `additionalProperties: false`: there are none. They are not taken away but refused.
    Nothing,
    /// They are all of one type.
    Of(Box<Node>),
}

/// The types of JSON Schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Kind {
    /// Nothing is said.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// What values must be, beyond their type.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    pub(super) format: Option<Format>,
    pub(super) values: Box<[Value]>,
    pub(super) pattern: Option<Box<Pattern>>,
    pub(super) max_length: Option<u64>,
    pub(super) min_length: Option<u64>,
    pub(super) max_items: Option<u64>,
    pub(super) min_items: Option<u64>,
    pub(super) max_properties: Option<u64>,
    pub(super) min_properties: Option<u64>,
    pub(super) maximum: Option<Bound>,
    pub(super) minimum: Option<Bound>,
    pub(super) multiple_of: Option<f64>,
    pub(super) required: Box<[Box<str>]>,
    pub(super) all_of: Box<[Node]>,
    pub(super) any_of: Box<[Node]>,
    pub(super) one_of: Box<[Node]>,
    pub(super) not: Option<Box<Node>>,
}

/// One end of a range of numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) at: f64,
    pub(super) is_exclusive: bool,
}

/// A regular expression, compiled when it is first needed: most are never.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pub(super) text: Box<str>,
    compiled: OnceLock<Option<regex::Regex>>,
    /// How many states it has, about: matching takes so many steps for each byte at worst.
    pub(super) weight: u64,
}

impl Pattern {
    fn new(text: &str) -> Self {
        Self { text: text.into(), compiled: OnceLock::new(), weight: pattern::weight(text) }
    }

    /// Whether the text matches. A pattern that cannot be compiled, which no definition can have, matches everything.
    pub(super) fn matches(&self, text: &str) -> bool {
        let compiled = self.compiled.get_or_init(|| pattern::compile(&self.text).ok());
        compiled.as_ref().is_none_or(|it| it.is_match(text))
    }
}

impl Node {
    /// Compiles a schema that was found to be structural. What is malformed in it all the same says nothing.
    pub fn compile(schema: &Value) -> Self {
        let Value::Object(schema) = schema else { return Self::default() };
        let text = |field: &str| schema.get(field).and_then(Value::as_str);
        let is_true = |field: &str| schema.get(field) == Some(&Value::Bool(true));
        let mut properties: Vec<(Box<str>, Self)> = entries(schema, "properties")
            .map(|(name, property)| (name.as_str().into(), Self::compile(property)))
            .collect();
        properties.sort_by(|(a, _), (b, _)| a.cmp(b));
        let rules = Rules::compile(schema);
        Self {
            kind: text("type").map_or(Kind::Any, Kind::parse),
            is_nullable: is_true("nullable"),
            keeps_unknown: is_true("x-kubernetes-preserve-unknown-fields"),
            is_embedded: is_true("x-kubernetes-embedded-resource"),
            is_int_or_string: is_true("x-kubernetes-int-or-string"),
            is_atomic: text("x-kubernetes-map-type") == Some("atomic"),
            list: list_kind(schema).map(Box::new),
            properties: properties.into(),
            additional: match schema.get("additionalProperties") {
                Some(Value::Bool(true)) => Some(Additional::Anything),
                Some(Value::Bool(false)) => Some(Additional::Nothing),
                Some(inner @ Value::Object(_)) => Some(Additional::Of(Box::new(Self::compile(inner)))),
                _ => None,
            },
            items: schema.get("items").filter(|it| it.is_object()).map(|it| Box::new(Self::compile(it))),
            default: schema.get("default").filter(|it| !it.is_null()).cloned().map(Box::new),
            rules,
        }
    }

    /// The root of a resource: an object with metadata, whatever its schema says.
    #[must_use]
    pub fn into_root(mut self) -> Self {
        self.is_embedded = true;
        self
    }

    /// How many states all patterns in here have together, about.
    pub fn pattern_weight(&self) -> u64 {
        let rules = self.rules.as_deref();
        let own = rules.and_then(|it| it.pattern.as_ref()).map_or(0, |it| it.weight);
        let alternatives = rules
            .into_iter()
            .flat_map(|it| it.all_of.iter().chain(&it.any_of).chain(&it.one_of).chain(it.not.as_deref()));
        let additional = match &self.additional {
            Some(Additional::Of(node)) => Some(&**node),
            Some(Additional::Anything | Additional::Nothing) | None => None,
        };
        let inner = self.properties.iter().map(|it| &it.1).chain(additional).chain(self.items.as_deref());
        inner.chain(alternatives).fold(own, |sum, it| sum.saturating_add(it.pattern_weight()))
    }

    /// The field of this name, if it is listed.
    pub fn property(&self, name: &str) -> Option<&Self> {
        let at = self.properties.binary_search_by(|(it, _)| (**it).cmp(name)).ok()?;
        Some(&self.properties[at].1)
    }

    /// What a field of this name looks like, listed or not.
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.property(name).or(match &self.additional {
            Some(Additional::Of(node)) => Some(&**node),
            Some(Additional::Anything | Additional::Nothing) | None => None,
        })
    }

    /// Whether objects have `apiVersion`, `kind` and `metadata` here, whatever is listed.
    pub(super) fn has_own(&self, name: &str) -> bool {
        self.is_embedded && matches!(name, "apiVersion" | "kind" | "metadata")
    }
}

impl Kind {
    fn parse(name: &str) -> Self {
        match name {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => Self::Any,
        }
    }

    /// As a schema names it; empty where nothing is said.
    pub fn name(self) -> &'static str {
        match self {
            Self::Any => "",
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

impl Rules {
    /// `None` if nothing is said.
    fn compile(schema: &Map) -> Option<Box<Self>> {
        const FIELDS: [&str; 17] = [
            "format",
            "enum",
            "pattern",
            "maxLength",
            "minLength",
            "maxItems",
            "minItems",
            "maxProperties",
            "minProperties",
            "maximum",
            "minimum",
            "multipleOf",
            "required",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
        ];
        if !FIELDS.iter().any(|it| schema.contains_key(*it)) {
            return None;
        }
        let count = |field: &str| schema.get(field).and_then(Value::as_u64);
        let number = |field: &str| schema.get(field).and_then(Value::as_f64);
        let bound = |field: &str, exclusive: &str| {
            let is_exclusive = schema.get(exclusive) == Some(&Value::Bool(true));
            number(field).map(|at| Bound { at, is_exclusive })
        };
        let list = |field: &str| schema.get(field).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let nodes = |field: &str| list(field).iter().map(Node::compile).collect();
        let text = |field: &str| schema.get(field).and_then(Value::as_str).filter(|it| !it.is_empty());
        Some(Box::new(Self {
            format: text("format").and_then(Format::parse),
            values: list("enum").into(),
            pattern: text("pattern").map(|it| Box::new(Pattern::new(it))),
            max_length: count("maxLength"),
            min_length: count("minLength"),
            max_items: count("maxItems"),
            min_items: count("minItems"),
            max_properties: count("maxProperties"),
            min_properties: count("minProperties"),
            maximum: bound("maximum", "exclusiveMaximum"),
            minimum: bound("minimum", "exclusiveMinimum"),
            multiple_of: number("multipleOf"),
            required: list("required").iter().filter_map(Value::as_str).map(Into::into).collect(),
            all_of: nodes("allOf"),
            any_of: nodes("anyOf"),
            one_of: nodes("oneOf"),
            not: schema.get("not").filter(|it| it.is_object()).map(|it| Box::new(Node::compile(it))),
        }))
    }
}

fn list_kind(schema: &Map) -> Option<ListKind> {
    match schema.get("x-kubernetes-list-type")?.as_str()? {
        "set" => Some(ListKind::Set),
        "map" => {
            let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            let keys = keys.into_iter().flatten().filter_map(Value::as_str).map(Arc::from);
            Some(ListKind::Map(keys.collect()))
        }
        _ => None,
    }
}

fn entries<'a>(schema: &'a Map, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    schema.get(field).and_then(Value::as_object).into_iter().flatten()
}
