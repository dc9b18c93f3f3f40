//! Errors about single fields, in upstream's words. Which fields are wrong is decided by the validators.

use std::fmt;

use crate::{Cause, Details, GroupKind, Reason, Status};

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldProblem {
    /// `Required value`
    Required,
    /// `Invalid value`
    Invalid,
    /// `Unsupported value`
    NotSupported,
    /// `Forbidden`
    Forbidden,
    /// `Duplicate value`
    Duplicate,
    /// `Not found`
    NotFound,
    /// `Too long`
    TooLong,
    /// `Too many`
    TooMany,
    /// `Invalid value` of a wrong type
    TypeInvalid,
    /// `Internal error`
    Internal,
}

impl FieldProblem {
    /// The reason of the cause in a `Status`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotFound => "FieldValueNotFound",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::Duplicate => "Duplicate value",
            Self::NotFound => "Not found",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }
}

/// One field that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The path of the field, such as `metadata.name` or `spec.ports[0].port`.
    pub field: String,
    /// What is wrong.
    pub problem: FieldProblem,
    /// The offending value as it is shown (already quoted if it is text); `None` shows no value.
    pub shown: Option<String>,
    /// More words; may be empty.
    pub detail: String,
}

impl FieldError {
    /// The field must be there.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: field.into(), problem: FieldProblem::Required, shown: None, detail: detail.into() }
    }

    /// The text is not acceptable.
    pub fn invalid(field: impl Into<String>, value: &str, detail: impl Into<String>) -> Self {
        Self::invalid_shown(field, quote(value), detail)
    }

    /// The value, shown as given (a number, or JSON), is not acceptable.
    pub fn invalid_shown(field: impl Into<String>, shown: String, detail: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: FieldProblem::Invalid,
            shown: Some(shown),
            detail: detail.into(),
        }
    }

    /// The text is none of the supported ones, which are shown in the order given.
    pub fn not_supported(field: impl Into<String>, value: &str, supported: &[&str]) -> Self {
        Self::not_supported_shown(field, quote(value), supported)
    }

    /// The same for a value that is no text, as it is shown.
    pub fn not_supported_shown(field: impl Into<String>, shown: String, supported: &[&str]) -> Self {
        let names: Vec<String> = supported.iter().map(|it| quote(it)).collect();
        let detail =
            if names.is_empty() { String::new() } else { format!("supported values: {}", names.join(", ")) };
        Self { field: field.into(), problem: FieldProblem::NotSupported, shown: Some(shown), detail }
    }

    /// The field must not be set, or not be changed, here.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: field.into(), problem: FieldProblem::Forbidden, shown: None, detail: detail.into() }
    }

    /// The text stands there twice.
    pub fn duplicate(field: impl Into<String>, value: &str) -> Self {
        let problem = FieldProblem::Duplicate;
        Self { field: field.into(), problem, shown: Some(quote(value)), detail: String::new() }
    }

    /// The text names something that is not there.
    pub fn not_found(field: impl Into<String>, value: &str) -> Self {
        let problem = FieldProblem::NotFound;
        Self { field: field.into(), problem, shown: Some(quote(value)), detail: String::new() }
    }

    /// The value is longer than `max` bytes. The value itself is not shown.
    pub fn too_long(field: impl Into<String>, max: usize) -> Self {
        let detail = format!("may not be more than {max} bytes");
        Self { field: field.into(), problem: FieldProblem::TooLong, shown: None, detail }
    }

    /// What stands behind the field's path: `Invalid value: "x": must …`.
    pub fn message(&self) -> String {
        let words = self.problem.words();
        let mut text = match &self.shown {
            Some(shown) => format!("{words}: {shown}"),
            None => words.to_owned(),
        };
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message())
    }
}

/// At most this many errors are collected about one object.
pub const MAX_FIELD_ERRORS: usize = 1000;

/// All fields of one object that are wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldErrors(pub Vec<FieldError>);

impl FieldErrors {
    /// Adds one. Beyond [`MAX_FIELD_ERRORS`] nothing is added: an answer to garbage must not outgrow the garbage.
    pub fn push(&mut self, error: FieldError) {
        if self.0.len() < MAX_FIELD_ERRORS {
            self.0.push(error);
        }
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The 422 answer about an object of this kind and name.
    pub fn into_status(self, kind: &GroupKind, name: &str) -> Status {
        // The message says everything once; the causes keep what was found twice.
        let mut texts: Vec<String> = Vec::new();
        for text in self.0.iter().map(ToString::to_string) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let joined = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let causes = self
            .0
            .iter()
            .map(|it| Cause {
                reason: it.problem.reason().to_owned(),
                message: it.message(),
                field: it.field.clone(),
            })
            .collect();
        let mut status =
            Status::failure(422, Reason::Invalid, format!("{kind} {} is invalid: {joined}", quote(name)));
        status.details = Some(Box::new(Details {
            name: name.to_owned(),
            group: kind.group.to_string(),
            kind: kind.kind.to_string(),
            causes,
            ..Details::default()
        }));
        status
    }
}

/// Text in double quotes with escapes, as Go's `%q` writes it for ordinary text.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() && u32::from(c) < 0x80 => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
